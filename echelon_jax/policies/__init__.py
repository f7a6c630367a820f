"""Networks, action heads and distributions: what a policy is, apart from how it is trained."""
