"""Running a federation: the round loop, the site's half of a stage, the carriers of messages."""
