"""The media that may be fetched: rules as tables, resources and pages, and refusals of them."""
