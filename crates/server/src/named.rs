//! The names that a server is told when it starts: its own hosts, and the origins of pages that may call it.
//!
//! What could never be the same as anything in a request is refused there and then: later it would only be seen that
//! callers are turned away.

use std::net::Ipv6Addr;

use crate::serve::Error;
use crate::settings::Settings;

/// Refuses names that no request could have.
pub(crate) fn check(settings: &Settings) -> Result<(), Error> {
    for host in &settings.hosts {
        check_host(host).map_err(|reason| Error::HostInvalid { host: host.clone(), reason })?;
    }
    for origin in &settings.origins {
        let refused = |reason| Error::OriginInvalid { origin: origin.clone(), reason };
        check_origin(origin).map_err(refused)?;
    }
    Ok(())
}

/// A name, or an address as it stands in a URL; without a port.
fn check_host(host: &str) -> Result<(), &'static str> {
    if host.is_empty() {
        return Err("is empty; give a name such as mill.example");
    }
    if host.contains('*') {
        return Err("is a pattern; name each host by itself");
    }
    if host.contains("://") || host.contains('/') {
        return Err("is a URL; give the host in it alone, such as mill.example");
    }
    if let Some(inner) = host.strip_prefix('[') {
        let address = inner.strip_suffix(']').map(str::parse::<Ipv6Addr>);
        return address
            .is_some_and(|address| address.is_ok())
            .then_some(())
            .ok_or("is no address of IPv6 in brackets; write it as [2001:db8::1], without a port");
    }
    if host.parse::<Ipv6Addr>().is_ok() {
        return Err("is an address of IPv6; write it in brackets, such as [2001:db8::1]");
    }
    if host.contains(':') {
        return Err("has a port; give the name alone, it holds on every port");
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let has_parts = host.strip_suffix('.').unwrap_or(host).split('.').all(|part| !part.is_empty());
    if !has_parts || !host.bytes().all(is_name) {
        return Err(
            "is no name of a host; it has letters, digits, dots and hyphens (others in punycode: xn--…)",
        );
    }
    Ok(())
}

/// A scheme and a host, with a port where it is not the usual one, as browsers send it.
fn check_origin(origin: &str) -> Result<(), &'static str> {
    const FORM: &str = "is no origin; write it as https://app.example, with a port if it has one";
    if origin == "*" {
        return Err("would let pages of everybody call the server; name each origin by itself");
    }
    let (scheme, rest) = origin.split_once("://").ok_or(FORM)?;
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err("has another scheme than http or https; pages have one of these");
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#']) {
        return Err("goes on behind the host; an origin has no path, give https://app.example");
    }
    let (host, port) = match rest.rfind(':') {
        Some(at) if !rest.ends_with(']') => (&rest[..at], Some(&rest[at + 1..])),
        _ => (rest, None),
    };
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return Err("has a port that is none; a port is a number up to 65535");
    }
    check_host(host).map_err(|_| FORM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_and_addresses_without_ports() {
        for host in [
            "mill.example",
            "Mill.Example.",
            "localhost",
            "10.0.0.1",
            "[::1]",
            "a_b-c",
            "xn--mhle-0ra.example",
        ] {
            assert_eq!(check_host(host), Ok(()), "{host}");
        }
        for (host, says) in [
            ("", "empty"),
            ("*", "pattern"),
            ("*.example", "pattern"),
            ("https://mill.example", "URL"),
            ("mill.example/v1", "URL"),
            ("mill.example:8384", "port"),
            ("::1", "brackets"),
            ("[::1]:80", "without a port"),
            ("[mill]", "no address"),
            ("mill..example", "no name"),
            ("mill example", "no name"),
            ("mühle.example", "punycode"),
        ] {
            assert!(check_host(host).unwrap_err().contains(says), "{host}");
        }
    }

    #[test]
    fn origins_are_as_browsers_send_them() {
        for origin in [
            "https://app.example",
            "http://localhost:3000",
            "HTTPS://App.Example/",
            "http://[::1]:80",
            "http://[::1]",
        ] {
            assert_eq!(check_origin(origin), Ok(()), "{origin}");
        }
        for (origin, says) in [
            ("*", "everybody"),
            ("app.example", "no origin"),
            ("null", "no origin"),
            ("ftp://app.example", "another scheme"),
            ("https://app.example/in", "no path"),
            ("https://app.example:99999", "65535"),
            ("https://app.example:", "65535"),
            ("https://", "no origin"),
            ("https://*.example", "no origin"),
            ("https://me@app.example", "no origin"),
        ] {
            assert!(check_origin(origin).unwrap_err().contains(says), "{origin}");
        }
    }
}
