"""Objectives x seeds from one configuration: grid, statistics, tables and page."""
