//! Options that choose a runtime other than `process`, and what it runs; and the sandbox of a process.

use std::path::Path;

use clap::Args;
use model::spec::{HttpMethod, PullPolicy, Run, SandboxLevel, SandboxNetwork};
use model::status::UnknownWord;
use serde_json::{Value, json};

use super::{Pair, Patch, parse_pair, read_text};
use crate::failure::Failure;

/// Options for the runtimes `container` and `http`, and for sandboxes.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Runtime")]
pub(crate) struct RuntimeArgs {
    /// Sandbox of the process: none, basic, strict [default: none]
    #[arg(long, value_name = "LEVEL", conflicts_with_all = ["image", "http"])]
    pub(crate) sandbox: Option<SandboxLevel>,
    /// Network in the sandbox: none, loopback, host [default: host with `basic`, none with `strict`]
    #[arg(long, value_name = "NETWORK", conflicts_with_all = ["image", "http"])]
    pub(crate) sandbox_network: Option<SandboxNetwork>,
    /// Image of a container that runs the command or the script: alpine:3.20 [default: a process on the worker]
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["stdin", "pre_start", "post_stop"])]
    pub(crate) image: Option<String>,
    /// When the worker pulls the image: if_missing, always, never [default: if_missing]
    #[arg(long, value_name = "POLICY", value_parser = pull_policy, requires = "image")]
    pub(crate) pull: Option<PullPolicy>,
    /// Entry point of the container; repeat the option for its arguments [default: that of the image]
    #[arg(
        long,
        value_name = "PROGRAM",
        allow_hyphen_values = true,
        requires = "image",
        conflicts_with = "script"
    )]
    pub(crate) entrypoint: Vec<String>,
    /// User in the container: a name or number, or USER:GROUP [default: that of the image]
    #[arg(long, value_name = "USER", requires = "image")]
    pub(crate) container_user: Option<String>,
    /// Network of the container: bridge, none, host, or the name of a network [default: bridge]
    #[arg(long, value_name = "NETWORK", requires = "image")]
    pub(crate) network: Option<String>,
    /// URL of an HTTP request, which is the job
    #[arg(long, value_name = "URL", conflicts_with_all = ["image", "command", "script", "interpreter", "env", "stdin", "workdir", "pre_start", "post_stop"])]
    pub(crate) http: Option<String>,
    /// Method of the request: GET, HEAD, POST, PUT, PATCH, DELETE [default: GET, or POST with a body]
    #[arg(long, value_name = "METHOD", value_parser = http_method, requires = "http")]
    pub(crate) http_method: Option<HttpMethod>,
    /// Header of the request; repeatable
    #[arg(long = "http-header", value_name = "NAME=VALUE", value_parser = parse_pair, requires = "http")]
    pub(crate) http_headers: Vec<Pair>,
    /// Body of the request; @FILE reads it from a file
    #[arg(long, value_name = "TEXT", requires = "http")]
    pub(crate) http_body: Option<String>,
    /// Condition on the response: status == 200 && body.code == 0
    #[arg(long, value_name = "EXPRESSION", requires = "http")]
    pub(crate) success_if: Option<String>,
}

fn pull_policy(text: &str) -> Result<PullPolicy, UnknownWord> {
    text.replace('-', "_").parse()
}

fn http_method(text: &str) -> Result<HttpMethod, UnknownWord> {
    text.to_ascii_uppercase().parse()
}

impl RuntimeArgs {
    /// Returns the runtime that the options choose; `None` if they choose none.
    pub(crate) fn chosen(&self) -> Option<&'static str> {
        match (&self.image, &self.http) {
            (Some(_), _) => Some(Run::CONTAINER),
            (None, Some(_)) => Some(Run::HTTP),
            (None, None) => None,
        }
    }

    /// Adds the given options to a patch. The chosen runtime replaces that of a file.
    pub(crate) fn patch(&self, patch: &mut Patch) -> Result<(), Failure> {
        patch.set("run.process.sandbox.level", self.sandbox)?;
        patch.set("run.process.sandbox.network", self.sandbox_network)?;
        let Some(chosen) = self.chosen() else { return Ok(()) };
        for other in [Run::PROCESS, Run::CONTAINER, Run::HTTP].iter().filter(|name| **name != chosen) {
            patch.set(&format!("run.{other}"), Some(Value::Null))?;
        }
        patch.set("run.container.image", self.image.as_ref())?;
        patch.set("run.container.pull", self.pull)?;
        patch.set_list("run.container.entrypoint", &self.entrypoint)?;
        patch.set("run.container.user", self.container_user.as_ref())?;
        patch.set("run.container.network", self.network.as_ref())?;
        patch.set("run.http.url", self.http.as_ref())?;
        patch.set("run.http.method", self.http_method)?;
        patch.set_map("run.http.headers", &self.http_headers)?;
        let body = self.http_body.as_deref().map(|text| match text.strip_prefix('@') {
            Some(file) => read_text(Path::new(file)),
            None => Ok(text.to_owned()),
        });
        patch.set("run.http.body", body.transpose()?)?;
        patch.set("run.http.success_if", self.success_if.as_ref().map(|text| json!(text)))
    }
}
