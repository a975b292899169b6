"""What a machine is: its GPUs, links, networks, software; live, or from text that somebody pasted."""
