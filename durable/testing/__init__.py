"""What a user needs to test workflows."""
