"""Topic definitions and settings as users see them."""
