//! Which addresses a request may be sent to.
//!
//! The user chooses the URL of a request, and the worker sends it. Loopback and private addresses are allowed: a
//! worker runs programs of the user too, which can reach them. Link-local addresses are refused, because a cloud
//! offers the credentials of the machine there. A request reaches them by a URL, by a name in DNS, or by a redirect:
//!
//! - [`check_url`] checks a host that is an address, of each request and redirect.
//! - [`Resolver`] drops the refused addresses of a name. The connection goes to one of the other addresses.
//!
//! A proxy of the environment resolves names itself, so only [`check_url`] applies then.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Metadata services outside of the link-local networks: those of Alibaba Cloud and Azure, and of AWS and Google Cloud.
const METADATA_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16)];
const METADATA_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];

/// Host with a refused address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot send a request to `{host}` ({address}): link-local addresses and the metadata services of clouds are refused"
)]
pub(super) struct NotAllowed {
    host: String,
    address: IpAddr,
}

/// Checks the host of a URL, if it is an address.
///
/// # Errors
/// The address is refused.
pub(super) fn check_url(url: &Url) -> Result<(), NotAllowed> {
    let host = url.host_str().unwrap_or_default();
    match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(address) if !is_allowed(address) => Err(NotAllowed { host: host.to_owned(), address }),
        _ => Ok(()),
    }
}

fn is_allowed(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_allowed_v4(v4),
        IpAddr::V6(v6) => match embedded_v4(v6) {
            Some(v4) => is_allowed_v4(v4),
            None => !v6.is_unicast_link_local() && !METADATA_V6.contains(&v6),
        },
    }
}

fn is_allowed_v4(address: Ipv4Addr) -> bool {
    !address.is_link_local() && !METADATA_V4.contains(&address)
}

/// Returns the IPv4 address that an IPv6 address stands for: mapped, or translated by NAT64 (RFC 6052).
fn embedded_v4(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let translated = || match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        _ => None,
    };
    v6.to_ipv4_mapped().or_else(translated)
}

/// Resolver of an HTTP client that returns only allowed addresses.
#[derive(Debug)]
pub(super) struct Resolver;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed = only_allowed(name.as_str(), found)?;
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// Drops the refused addresses of a name. The own name of a machine often has a link-local address beside others.
fn only_allowed(host: &str, found: impl Iterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, NotAllowed> {
    let (allowed, refused): (Vec<_>, Vec<_>) = found.partition(|address| is_allowed(address.ip()));
    match refused.first() {
        Some(address) if allowed.is_empty() => {
            Err(NotAllowed { host: host.to_owned(), address: address.ip() })
        }
        _ => Ok(allowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed_url(url: &str) -> bool {
        check_url(&Url::parse(url).unwrap()).is_ok()
    }

    #[test]
    fn link_local_addresses_are_refused_in_every_notation() {
        for refused in [
            "http://169.254.169.254/latest/meta-data",
            "http://169.254.0.1:8080/",
            "http://0xa9fea9fe/",
            "http://2852039166/",
            "http://169.254.169.254./",
            "http://user@169.254.169.254/",
            "http://[::ffff:169.254.169.254]/",
            "http://[64:ff9b::169.254.169.254]/",
            "http://[fe80::1]/",
            "http://[febf::1]/",
            "http://[fd00:ec2::254]/",
            "http://[fd20:ce::254]/",
            "http://100.100.100.200/latest/meta-data",
            "http://168.63.129.16/",
        ] {
            assert!(!is_allowed_url(refused), "{refused}");
        }
    }

    #[test]
    fn public_private_and_loopback_addresses_are_allowed() {
        for allowed in [
            "http://example.com/",
            "http://1.1.1.1/",
            "http://127.0.0.1/",
            "http://10.0.0.1/",
            "http://192.168.1.1/",
            "http://169.253.0.1/",
            "http://[::1]/",
            "http://[fd00::1]/",
            "http://[::ffff:10.0.0.1]/",
        ] {
            assert!(is_allowed_url(allowed), "{allowed}");
        }
    }

    #[test]
    fn a_name_loses_its_link_local_addresses() {
        let addresses = |list: &[&str]| -> Vec<SocketAddr> {
            list.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect()
        };
        let resolved = |list: &[&str]| only_allowed("db", addresses(list).into_iter());
        assert_eq!(resolved(&["fe80::1", "10.0.0.1"]), Ok(addresses(&["10.0.0.1"])));
        assert_eq!(resolved(&[]), Ok(Vec::new()));
        insta::assert_snapshot!(
            resolved(&["169.254.169.254", "::ffff:169.254.169.254"]).unwrap_err(),
            @"cannot send a request to `db` (169.254.169.254): link-local addresses and the metadata services of clouds are refused"
        );
    }
}
