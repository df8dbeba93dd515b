//! Where a webhook may point: a URL that is one, and addresses that are of the public internet.
//!
//! A sender that calls what others name is a door into the network it stands in. So: https unless it is allowed,
//! nobody's password in a URL, and only addresses that anybody can reach, whatever they are written as. Names are
//! resolved by the sender, which asks here for each address and connects to that very address.
//!
//! It refuses to guess: what cannot be read is no target.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use url::{Host, Url};

use crate::error::{Error, Result};

/// The longest URL.
pub const URL_BYTES_MAX: usize = 2000;

/// A URL that can be called, if its addresses may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The whole of it.
    pub url: Url,
    /// The name or address of the other side, as it stands in a certificate and in `Host`.
    pub host: String,
    /// The address, of a URL that has one in place of a name.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// Whether it is https.
    pub is_secure: bool,
}

impl Target {
    /// Reads a URL.
    pub fn parse(text: &str) -> Result<Self> {
        let refused = |reason: &str| Error::WebhookInvalid { reason: format!("the URL {reason}") };
        if text.len() > URL_BYTES_MAX {
            return Err(refused("has more than 2,000 bytes"));
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
            return Err(refused("has blanks, backslashes or control characters; encode them"));
        }
        let url = Url::parse(text).map_err(|error| refused(&format!("cannot be read: {error}")))?;
        let is_secure = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(refused("is neither https nor http")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused("has a name or password in it; the signature says who sends"));
        }
        let (host, address) = match url.host() {
            Some(Host::Domain(name)) if !name.is_empty() => (name.to_owned(), None),
            Some(Host::Ipv4(address)) => (address.to_string(), Some(IpAddr::V4(address))),
            Some(Host::Ipv6(address)) => (format!("[{address}]"), Some(IpAddr::V6(address))),
            _ => return Err(refused("names no host")),
        };
        let port = url.port_or_known_default().ok_or_else(|| refused("has no port"))?;
        Ok(Self { url, host, address, port, is_secure })
    }
}

/// What a sender may call, besides the public internet over https.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Policy {
    /// Addresses and hosts that are allowed, also over http.
    pub allow: Vec<Allowed>,
    /// Ports that may be called; all but those below 1024 that are not 80 or 443 when none is named.
    pub ports: Vec<u16>,
}

/// Something that is allowed although it is not of the public internet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Allowed {
    /// Addresses: `10.1.0.0/16`, `127.0.0.1`, `fd00::/8`.
    Net {
        /// The first one.
        address: IpAddr,
        /// How many bits are theirs in common.
        bits: u8,
    },
    /// A host of this very name, wherever it is.
    Host(String),
}

impl FromStr for Allowed {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |reason: &str| Error::WebhookInvalid { reason: format!("{text:?} {reason}") };
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let Ok(address) = address.trim_matches(['[', ']']).parse::<IpAddr>() else {
            let is_name = bits.is_none() && !text.is_empty() && !text.contains([':', '*', ' ']);
            return if is_name {
                Ok(Self::Host(text.to_ascii_lowercase()))
            } else {
                Err(wrong("is neither a network like 10.0.0.0/8 nor the name of a host"))
            };
        };
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).ok().filter(|bits| *bits <= most);
        bits.map(|bits| Self::Net { address, bits }).ok_or_else(|| wrong("has no such bits"))
    }
}

impl Allowed {
    fn contains(&self, host: &str, address: IpAddr) -> bool {
        match self {
            Self::Host(name) => name == host,
            Self::Net { address: first, bits } => match (first, plain(address)) {
                (IpAddr::V4(a), IpAddr::V4(b)) => {
                    same(a.to_bits().into(), b.to_bits().into(), 32, *bits)
                }
                (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128, *bits),
                _ => false,
            },
        }
    }
}

fn same(a: u128, b: u128, width: u32, bits: u8) -> bool {
    let rest = width - u32::from(bits).min(width);
    a.checked_shr(rest) == b.checked_shr(rest)
}

impl Policy {
    /// Whether a target may be called at this address, which is its own or was found under its name.
    pub fn check(&self, target: &Target, address: IpAddr) -> Result<()> {
        let refused =
            |reason: String| Err(Error::WebhookRefused { host: target.host.clone(), reason });
        let is_allowed = self.allow.iter().any(|allowed| allowed.contains(&target.host, address));
        if !is_allowed && !target.is_secure {
            return refused("it is not https; allow the host, if nobody else is on the way".into());
        }
        self.check_port(target)?;
        if !is_allowed && !is_public(address) {
            let reason = format!("{address} is not an address of the public internet");
            return refused(format!("{reason}; allow it (--webhook-allow), if it is meant"));
        }
        Ok(())
    }

    /// What can be said of a URL before its name is resolved.
    pub fn check_url(&self, target: &Target) -> Result<()> {
        if let Some(address) = target.address {
            return self.check(target, address);
        }
        let may_be = |allowed: &Allowed| match allowed {
            Allowed::Host(name) => *name == target.host,
            Allowed::Net { .. } => true,
        };
        if !target.is_secure && !self.allow.iter().any(may_be) {
            let reason = "it is not https, and neither it nor any network is allowed".to_owned();
            return Err(Error::WebhookRefused { host: target.host.clone(), reason });
        }
        self.check_port(target)
    }

    fn check_port(&self, target: &Target) -> Result<()> {
        if self.has_port(target.port) {
            return Ok(());
        }
        let reason = format!("port {} is not one of those that may be called", target.port);
        Err(Error::WebhookRefused { host: target.host.clone(), reason })
    }

    fn has_port(&self, port: u16) -> bool {
        if self.ports.is_empty() {
            return port >= 1024 || [80, 443].contains(&port);
        }
        self.ports.contains(&port)
    }
}

/// The address that is really meant, where one is written inside of another.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Whether an address is of the public internet: reached by everybody, and one machine's.
pub fn is_public(address: IpAddr) -> bool {
    match plain(address) {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

/// Networks that are not: this one, private, carriers' own (CGNAT), loopback, the one by which Azure's
/// machines reach their host, link-local (metadata of clouds), documentation, 6to4 relays, benchmarks, multicast,
/// reserved.
const CLOSED_V4: [(Ipv4Addr, u8); 16] = [
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    let is_in = |(net, bits): &(Ipv4Addr, u8)| {
        same(net.to_bits().into(), address.to_bits().into(), 32, *bits)
    };
    !CLOSED_V4.iter().any(is_in)
}

/// Of the global unicast addresses, those that are not public: Teredo and other protocols' (2001::/23), documentation,
/// 6to4, which has any address of IPv4 inside. NAT64 (64:ff9b::/96 and 64:ff9b:1::/48), unique-local, link-local,
/// loopback and multicast are not among the global ones in the first place.
const CLOSED_V6: [(Ipv6Addr, u8); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

fn is_public_v6(address: Ipv6Addr) -> bool {
    let is_in = |(net, bits): &(Ipv6Addr, u8)| same(net.to_bits(), address.to_bits(), 128, *bits);
    let is_global = is_in(&(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3));
    is_global && !CLOSED_V6.iter().any(is_in)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One URL a line: what becomes of it, and it.
    const CORPUS: &str = include_str!("targets.txt");

    #[test]
    fn every_target_of_the_corpus_gets_what_it_deserves() {
        let mut seen = 0;
        for line in CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (expected, text) = line.split_once(' ').unwrap();
            let text = text.replace("\\t", "\t").replace("\\0", "\0");
            let found = match Target::parse(&text) {
                Err(_) => "unreadable",
                Ok(target) => match target.address {
                    None => "name",
                    Some(address) if Policy::default().check(&target, address).is_ok() => "public",
                    Some(_) => "refused",
                },
            };
            assert_eq!(found, expected, "{text:?}");
            seen += 1;
        }
        assert!(seen >= 90, "{seen} targets");
    }

    #[test]
    fn what_is_allowed_is_allowed_and_nothing_beside_it() {
        let may = |allow: &str, url: &str, address: &str| {
            let policy = Policy { allow: vec![allow.parse().unwrap()], ports: Vec::new() };
            policy.check(&Target::parse(url).unwrap(), address.parse().unwrap()).is_ok()
        };
        assert!(may("127.0.0.1", "http://127.0.0.1:8080/", "127.0.0.1"));
        assert!(may("127.0.0.1", "http://[::ffff:127.0.0.1]:8080/", "::ffff:127.0.0.1"));
        assert!(!may("127.0.0.1", "http://127.0.0.2:8080/", "127.0.0.2"));
        assert!(may("10.1.0.0/16", "https://in.example/", "10.1.255.1"));
        assert!(!may("10.1.0.0/16", "https://in.example/", "10.2.0.1"));
        assert!(may("fd00::/8", "https://in.example/", "fd12::1"));
        assert!(may("in.example", "http://in.example/", "10.2.0.1"));
        assert!(!may("in.example", "https://x.in.example/", "10.2.0.1"));
        assert!(may("0.0.0.0/0", "http://in.example/", "10.2.0.1"), "all of IPv4");
        for wrong in ["10.0.0.0/33", "*.example", "a b", "", "::/129"] {
            assert!(wrong.parse::<Allowed>().is_err(), "{wrong:?}");
        }
        let check =
            |policy: &Policy, url: &str| policy.check_url(&Target::parse(url).unwrap()).is_ok();
        let strict = Policy::default();
        assert!(check(&strict, "https://example.com/") && !check(&strict, "http://example.com/"));
        assert!(!check(&strict, "https://10.0.0.1/"));
        assert!(!check(&strict, "https://example.com:22/"), "a port is known before its name is");
        assert!(check(&strict, "https://example.com:8443/"));
        let https = Target::parse("https://example.com:22/").unwrap();
        assert!(Policy::default().check(&https, "93.184.216.34".parse().unwrap()).is_err());
        let only = Policy { allow: Vec::new(), ports: vec![8443] };
        let https = Target::parse("https://example.com/").unwrap();
        assert!(only.check(&https, "93.184.216.34".parse().unwrap()).is_err());
        assert!(!check(&only, "https://example.com/") && check(&only, "https://example.com:8443/"));
    }
}
