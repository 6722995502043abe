"""A site's cases: tasks, readers, folders, splits, synthetic federations, augmentation, batches."""
