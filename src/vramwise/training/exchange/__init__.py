"""What ranks and their hosts exchange: gathered weights, buckets, offloaded states."""
