"""The vocabulary of a federation: weights, letters, sites, the server, methods and their stages."""
