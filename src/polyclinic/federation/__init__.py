"""The vocabulary of a federation: weights, messages, sites, the server, methods and stages."""
