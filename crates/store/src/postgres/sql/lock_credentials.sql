-- Who adds a credential does so alone; who reads, goes on.
lock table tidemill.credential in share row exclusive mode;
