"""The Flower engine: the same method objects behind Flower's deployment runtime."""
