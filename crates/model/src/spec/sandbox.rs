//! The sandbox of a process.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Sandbox of a process: what the process, its sidecars and its hooks can see and do on the worker. It needs a worker
/// whose kernel has everything that the level needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Sandbox {
    /// How much the sandbox isolates [default: `none`].
    #[serde(default)]
    pub level: SandboxLevel,
    /// Network in the sandbox [default: `host` with the level `basic`, `none` with the level `strict`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<SandboxNetwork>,
}

/// How much a sandbox isolates. Each level includes the ones before it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SandboxLevel {
    /// No sandbox.
    #[default]
    None,
    /// The process sees only its own processes. The files of the worker are read-only, except the directory of the execution
    /// and the volumes of the job; `/tmp` is empty and private. System calls that an ordinary program does not need are
    /// refused.
    Basic,
    /// The process sees only programs, libraries and a few public settings of the worker, and by default no network. The
    /// kernel also checks each access to a file against a list (Landlock).
    Strict,
}

crate::status::words! { SandboxLevel, "a sandbox level", {
    None = "none";
    Basic = "basic";
    Strict = "strict";
} }

/// Network in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxNetwork {
    /// No network.
    None,
    /// Only a loopback interface, which the processes of the execution share.
    Loopback,
    /// The network of the worker.
    Host,
}

crate::status::words! { SandboxNetwork, "a network of a sandbox", {
    None = "none";
    Loopback = "loopback";
    Host = "host";
} }

impl Sandbox {
    /// Returns whether there is no sandbox.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns this sandbox, made at least as strict as `minimum`. A process without a sandbox gets `minimum`.
    pub fn tightened(&self, minimum: &Self) -> Self {
        if self.level == SandboxLevel::None {
            return *minimum;
        }
        let level = self.level.max(minimum.level);
        let by_default = Self { level, network: None }.network();
        let own = self.network.unwrap_or(by_default);
        let network = minimum.network.map_or(own, |most| own.min(most));
        let is_explicit = self.network.is_some() || network != by_default;
        Self { level, network: is_explicit.then_some(network) }
    }

    /// Returns the network, with its default.
    pub fn network(&self) -> SandboxNetwork {
        self.network.unwrap_or(match self.level {
            SandboxLevel::None | SandboxLevel::Basic => SandboxNetwork::Host,
            SandboxLevel::Strict => SandboxNetwork::None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(level: SandboxLevel, network: Option<SandboxNetwork>) -> Sandbox {
        Sandbox { level, network }
    }

    #[test]
    fn a_minimum_can_only_tighten_a_sandbox() {
        use SandboxLevel as Level;
        use SandboxNetwork as Network;
        let networks = [None, Some(Network::None), Some(Network::Loopback), Some(Network::Host)];
        for &level in Level::ALL {
            for network in networks.into_iter().filter(|network| level != Level::None || network.is_none()) {
                let own = sandbox(level, network);
                for &least in &Level::ALL[1..] {
                    for most in networks {
                        let minimum = sandbox(least, most);
                        let result = own.tightened(&minimum);
                        let about = format!("{own:?}, {minimum:?}: {result:?}");
                        assert!(result.level >= own.level && result.level >= minimum.level, "{about}");
                        assert!(most.is_none_or(|most| result.network() <= most), "{about}");
                        assert!(level == Level::None || result.network() <= own.network(), "{about}");
                        assert_eq!(result.tightened(&minimum), result, "{about}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_strict_sandbox_has_no_network_unless_the_job_asks_for_it() {
        assert_eq!(sandbox(SandboxLevel::Basic, None).network(), SandboxNetwork::Host);
        assert_eq!(sandbox(SandboxLevel::Strict, None).network(), SandboxNetwork::None);
        let none = Sandbox::default();
        let strict = sandbox(SandboxLevel::Strict, None);
        assert_eq!(none.tightened(&strict).network(), SandboxNetwork::None);
        let open = sandbox(SandboxLevel::Basic, Some(SandboxNetwork::Host));
        assert_eq!(strict.tightened(&open), strict, "a minimum opens no network");
    }
}
