"""Files -> documents -> sentences -> shards -> examples -> masked batches."""
