//! The runtime `container`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A container of an image. It needs a worker with a container engine that has the API of Docker: Docker or Podman.
///
/// The directory of the execution is mounted at `/belfry` in the container. Volumes of the job are mounted at
/// `/volumes/<NAME>`. The variables `BELFRY_*` have the paths in the container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ContainerRun {
    /// Image, as in `docker run`: `alpine:3.20`, `ghcr.io/team/app@sha256:…`. At most 512 bytes.
    pub image: String,
    /// When the worker pulls the image from its registry [default: `if_missing`].
    #[serde(default, skip_serializing_if = "PullPolicy::is_default")]
    pub pull: PullPolicy,
    /// Program and arguments, at most 1,000, or arguments of the entry point, as in `docker run IMAGE COMMAND…` [default:
    /// the command of the image].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Entry point, which replaces the one of the image. Then the command of the image does not apply [default: the entry
    /// point of the image].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// Text of a script, which the worker writes to a file in `/belfry` and runs with `interpreter`. Replaces the entry
    /// point and the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Interpreter of `script`, with its arguments; the image must have it [default: `["/bin/sh"]`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interpreter: Vec<String>,
    /// Environment variables, added to those of the image. Names match `[A-Za-z_][A-Za-z0-9_]*`; `BELFRY_*` and
    /// `LD_*` are reserved. At most 1,000 variables of 32 KiB each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Working directory in the container [default: the working directory of the image].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// User in the container: a name or number, or `USER:GROUP` [default: the user of the image].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Network of the container: `bridge`, `none`, `host`, or the name of a network of the engine [default: `bridge`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Port numbers in the container, for `ports` of the job: `{"http": 80}` forwards the port `http` of the worker to port
    /// 80 [default: the same numbers as on the worker, which are in `BELFRY_PORT_<NAME>`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub container_ports: BTreeMap<String, u16>,
    /// Whether the file system of the image is read-only; `/tmp` is then an empty file system in memory [default: false].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// When a worker pulls an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PullPolicy {
    /// If the worker does not have the image.
    #[default]
    IfMissing,
    /// Before each execution.
    Always,
    /// Never: the worker must have the image.
    Never,
}

crate::status::words! { PullPolicy, "a pull policy", {
    IfMissing = "if_missing";
    Always = "always";
    Never = "never";
} }

impl PullPolicy {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
