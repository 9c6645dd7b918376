"""What several services stand on."""
