//! Which addresses the server may send requests of users to.
//!
//! A user chooses the URL of a channel, or of a metric that scales a service. Without a guard, the server would send requests for them to machines that only the
//! server can reach (server-side request forgery): itself, the services of its network, the metadata of a cloud. So a name
//! is resolved once, every address is checked, and the connection goes to a checked address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Private networks that may be reached, in addition to all public addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Networks(Vec<Network>);

/// Network of IPv4 or IPv6 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Text that is not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a network: expected an address and a prefix length, for example `10.0.0.0/8` or `fd00::/8`"
)]
pub struct InvalidNetwork(String);

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let invalid = || InvalidNetwork(text.chars().take(64).collect());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u8>().map_err(|_| invalid())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(bits);
        if prefix > bits { Err(invalid()) } else { Ok(Self { address, prefix }) }
    }
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        let same = |ours: u128, theirs: u128, bits: u32| {
            let shift = bits - u32::from(self.prefix);
            ours.checked_shr(shift) == theirs.checked_shr(shift)
        };
        match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                same(ours.to_bits().into(), theirs.to_bits().into(), 32)
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => same(ours.to_bits(), theirs.to_bits(), 128),
            _ => false,
        }
    }
}

impl FromIterator<Network> for Networks {
    fn from_iter<I: IntoIterator<Item = Network>>(networks: I) -> Self {
        Self(networks.into_iter().collect())
    }
}

/// Address that the server must not reach.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{host}` does not have a public address: an administrator can allow its network in `server.private_networks`"
)]
pub struct Forbidden {
    /// Host of the URL.
    pub host: String,
    /// Address of the host. It is not shown, because it can be part of a private network.
    pub address: IpAddr,
}

impl Networks {
    /// Returns the addresses of this machine.
    pub fn loopback() -> Self {
        let network = |address: IpAddr, prefix| Network { address, prefix };
        Self(vec![network(Ipv4Addr::LOCALHOST.into(), 8), network(Ipv6Addr::LOCALHOST.into(), 128)])
    }

    /// Returns whether there are no networks, so only public addresses may be reached.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks an address of a host.
    ///
    /// # Errors
    /// [`Forbidden`] if the address is not public, and in none of the networks.
    pub fn check(&self, host: &str, address: IpAddr) -> Result<(), Forbidden> {
        let address = match address {
            IpAddr::V6(v6) => embedded_v4(v6).map_or(address, IpAddr::V4),
            IpAddr::V4(_) => address,
        };
        if is_public(address) || self.0.iter().any(|network| network.contains(address)) {
            return Ok(());
        }
        Err(Forbidden { host: host.to_owned(), address })
    }

    /// Checks the host of a URL, if it is an address.
    ///
    /// # Errors
    /// [`Forbidden`].
    pub fn check_url(&self, url: &reqwest::Url) -> Result<(), Forbidden> {
        let host = url.host_str().unwrap_or_default();
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) => self.check(host, address),
            Err(_) => Ok(()),
        }
    }

    /// Resolves a host, and returns its addresses if all of them may be reached.
    ///
    /// # Errors
    /// [`Forbidden`] as the source of an error, or the error of the resolution.
    pub async fn resolve(&self, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        let found: Vec<_> = tokio::net::lookup_host((host, port)).await?.collect();
        for address in &found {
            self.check(host, address.ip()).map_err(std::io::Error::other)?;
        }
        Ok(found)
    }
}

/// Returns an HTTP client that connects only to addresses that may be reached.
///
/// It does not check a host that is an address: call [`Networks::check_url`] before.
pub(crate) fn guarded_client(
    networks: &Arc<Networks>,
    connect_timeout: Duration,
    timeout: Duration,
) -> reqwest::Client {
    // Fails if another part of the process has already installed one.
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("belfry/", env!("CARGO_PKG_VERSION")))
        .dns_resolver(Arc::new(GuardedResolver(Arc::clone(networks))))
        // A redirect could lead to a forbidden address, and would get the secrets of the request.
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(connect_timeout)
        .timeout(timeout)
        .build()
        .expect("the settings of the client are constant")
}

/// Resolver of an HTTP client that only returns addresses that may be reached.
struct GuardedResolver(Arc<Networks>);

impl fmt::Debug for GuardedResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GuardedResolver").field(&self.0).finish()
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let networks = Arc::clone(&self.0);
        Box::pin(async move {
            let found = networks.resolve(name.as_str(), 0).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Whether an address belongs to the public Internet (special-purpose registries of IANA, 2025).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
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

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    let is_special = v4.is_private()
        || v4.is_loopback()
        || v4.is_link_local()
        || v4.is_broadcast()
        || v4.is_multicast()
        || v4.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (18..20).contains(&b));
    !is_special
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    // 2000::/3 is all that is assigned; parts of it carry IPv4 addresses, are for documentation, or for protocols.
    let [first, second, ..] = v6.segments();
    let is_global = first & 0xe000 == 0x2000;
    let is_special =
        first == 0x2002 || (first == 0x2001 && (second < 0x0200 || second == 0x0db8)) || first == 0x3fff;
    is_global && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_reached_by_default() {
        let none = Networks::default();
        for public in ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "2a00:1450::1", "64:ff9b::101:101"] {
            assert_eq!(none.check("x", public.parse().unwrap()), Ok(()), "{public}");
        }
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fd00:ec2::254",
            "192.88.99.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001::1",
        ] {
            assert!(none.check("x", private.parse().unwrap()).is_err(), "{private}");
        }
    }

    #[test]
    fn a_network_of_the_settings_may_be_reached() {
        let networks: Networks = ["10.0.0.0/8", "127.0.0.1", "fd00::/8"]
            .map(|text| text.parse::<Network>().unwrap())
            .into_iter()
            .collect();
        for (address, ok) in [
            ("10.200.0.1", true),
            ("11.0.0.1", true),
            ("127.0.0.1", true),
            ("127.0.0.2", false),
            ("fd12::1", true),
            ("fe80::1", false),
        ] {
            assert_eq!(networks.check("x", address.parse().unwrap()).is_ok(), ok, "{address}");
        }
        for wrong in ["", "10.0.0.0/33", "a/8", "10.0.0.0/", "::/129"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains("1.2.3.4".parse().unwrap()));
    }

    #[tokio::test]
    async fn a_name_with_a_private_address_is_refused_with_the_setting_to_change() {
        let refused = Networks::default().resolve("localhost", 80).await.unwrap_err();
        let text = refused.to_string();
        assert!(
            text.starts_with("`localhost` does not have a public address")
                && text.contains("`server.private_networks`"),
            "{text}"
        );
        let url = reqwest::Url::parse("http://[::1]:9/").unwrap();
        assert!(Networks::default().check_url(&url).is_err());
    }
}
