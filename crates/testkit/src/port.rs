//! Free loopback ports for servers that are killed and started again.
//!
//! Port 0 would be simpler, but it picks from the range of outgoing connections. Between a kill and
//! a restart a client that keeps retrying can then be given the server's own port as its local
//! one, and so connect to itself and keep the server from starting. Ports below that range (Linux
//! begins at 32768) cannot be taken that way.
//!
//! It refuses to promise: another process can take the port first, so servers try again.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, bail};

const FIRST: u64 = 20_000;
const COUNT: u64 = 12_000;

/// A loopback port that nobody listened on a moment ago.
pub(crate) fn free() -> Result<u16> {
    let start = RandomState::new().hash_one("port");
    for offset in 0..COUNT {
        let port = u16::try_from(FIRST + start.wrapping_add(offset) % COUNT)?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port on 127.0.0.1 between {FIRST} and {}", FIRST + COUNT - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_port_is_below_the_range_of_outgoing_connections() {
        let port = u64::from(free().unwrap());
        assert!((FIRST..FIRST + COUNT).contains(&port));
    }
}
