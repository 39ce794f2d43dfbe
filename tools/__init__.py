"""What writes the generated pages and brings runs into results/."""
