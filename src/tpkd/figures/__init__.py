"""The drawings that explain the geometry."""
