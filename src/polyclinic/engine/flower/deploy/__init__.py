"""What a consortium needs beside Polyclinic itself: certificates, keys, units, a proxy, checks."""
