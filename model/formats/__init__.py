"""Files of other programs: each reader answers with one Found, and the writers take one."""
