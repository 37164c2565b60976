"""What several tests need: engines that answer, inventories as text, recorded events."""
