"""ids -> hidden states -> logits."""
