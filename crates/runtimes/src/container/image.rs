//! Images: whether the engine has one, and how it is pulled.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::Docker;
use bollard::auth::DockerCredentials;
use bollard::errors::Error;
use bollard::models::ImageInspect;
use bollard::query_parameters::CreateImageOptions;
use futures::StreamExt as _;
use model::spec::PullPolicy;
use serde::Deserialize;

use super::engine::reason;
use crate::End;

/// Key of the public registry in the configuration of Docker.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";
/// Hosts of the public registry.
const DOCKER_HUB_HOSTS: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];
/// Time without progress after which a pull fails.
const STALL_MAX: Duration = Duration::from_secs(600);

/// What a container of an image runs, unless the job says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Defaults {
    pub(super) entrypoint: Vec<String>,
    pub(super) command: Vec<String>,
    pub(super) user: String,
}

impl From<ImageInspect> for Defaults {
    fn from(image: ImageInspect) -> Self {
        let config = image.config.unwrap_or_default();
        Self {
            entrypoint: config.entrypoint.unwrap_or_default(),
            command: config.cmd.unwrap_or_default(),
            user: config.user.unwrap_or_default(),
        }
    }
}

/// Ensures that the engine has an image, as the policy says. Returns what it runs.
pub(super) async fn ensure(engine: &Docker, image: &str, policy: PullPolicy) -> Result<Defaults, End> {
    if policy != PullPolicy::Always {
        match engine.inspect_image(image).await {
            Ok(found) => return Ok(found.into()),
            Err(Error::DockerResponseServerError { status_code: 404, .. })
                if policy == PullPolicy::IfMissing => {}
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => {
                let detail = format!("the worker does not have the image `{image}`, and `pull` is `never`");
                return Err(End::start_failed("image_missing", detail));
            }
            Err(error) => {
                return Err(End::start_failed(
                    "engine_unavailable",
                    format!("cannot look for the image `{image}`: {}", reason(&error)),
                ));
            }
        }
    }
    pull(engine, image).await?;
    let found = engine.inspect_image(image).await;
    found.map(Defaults::from).map_err(|error| {
        End::start_failed(
            "image_missing",
            format!("cannot find the image `{image}` after its pull: {}", reason(&error)),
        )
    })
}

async fn pull(engine: &Docker, image: &str) -> Result<(), End> {
    eprintln!("belfry: pulling the image `{image}`");
    let began = Instant::now();
    let options = CreateImageOptions { from_image: Some(tagged(image)), ..CreateImageOptions::default() };
    let mut steps = Box::pin(engine.create_image(Some(options), None, credentials(image)));
    loop {
        let Ok(step) = tokio::time::timeout(STALL_MAX, steps.next()).await else {
            let detail = format!("cannot pull the image `{image}`: no progress for {STALL_MAX:?}");
            return Err(End::start_failed("image_pull_failed", detail));
        };
        let Some(step) = step else { break };
        let failure = match step {
            Ok(info) => info.error_detail.and_then(|detail| detail.message),
            Err(error) => Some(reason(&error)),
        };
        if let Some(failure) = failure {
            return Err(End::start_failed(
                code_of(&failure),
                format!("cannot pull the image `{image}`: {failure}"),
            ));
        }
    }
    eprintln!("belfry: pulled the image `{image}` in {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Returns an image with the tag `latest`, if it has neither a tag nor a digest; the engine would pull all tags.
fn tagged(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains([':', '@']) { image.to_owned() } else { format!("{image}:latest") }
}

fn code_of(failure: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| failure.contains(word));
    if has(&["unauthorized", "authentication required", "no basic auth credentials"]) {
        "image_unauthorized"
    } else if has(&["manifest unknown", "not found", "repository does not exist"]) {
        "image_not_found"
    } else {
        "image_pull_failed"
    }
}

/// Part of `config.json` of Docker.
#[derive(Debug, Default, Deserialize)]
struct Config {
    #[serde(default)]
    auths: HashMap<String, Auth>,
}

#[derive(Debug, Default, Deserialize)]
struct Auth {
    auth: Option<String>,
    identitytoken: Option<String>,
}

/// Returns the credentials for the registry of an image that `docker login` has stored for the user of the worker.
fn credentials(image: &str) -> Option<DockerCredentials> {
    let text = std::fs::read_to_string(home()?.join(".docker/config.json")).ok()?;
    credentials_in(&text, registry(image))
}

fn credentials_in(config: &str, registry: &str) -> Option<DockerCredentials> {
    let config: Config = serde_json::from_str(config).ok()?;
    let with_scheme = format!("https://{registry}");
    let keys = [registry, with_scheme.as_str()];
    let found = keys.into_iter().find_map(|key| config.auths.get(key))?;
    let decoded = STANDARD.decode(found.auth.as_deref()?).ok()?;
    let (user, password) = str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some(DockerCredentials {
        username: Some(user.to_owned()),
        password: Some(password.to_owned()),
        identitytoken: found.identitytoken.clone(),
        serveraddress: Some(registry.to_owned()),
        ..DockerCredentials::default()
    })
}

/// Returns the registry of an image, as in the configuration of Docker.
fn registry(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, _)) if DOCKER_HUB_HOSTS.contains(&host) => DOCKER_HUB,
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => DOCKER_HUB,
    }
}

/// Returns the home directory of the user of this process. The variable `HOME` is the directory of the execution.
fn home() -> Option<PathBuf> {
    let own = rustix::process::geteuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let user = users.lines().find(|line| line.split(':').nth(2) == Some(&own))?;
    user.split(':').nth(5).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_tag_is_the_latest() {
        let images = ["alpine", "alpine:3.20", "localhost:5000/a", "a/b@sha256:00"].map(tagged);
        assert_eq!(images, ["alpine:latest", "alpine:3.20", "localhost:5000/a:latest", "a/b@sha256:00"]);
    }

    #[test]
    fn the_registry_of_an_image_is_its_host() {
        let registries =
            ["alpine", "docker.io/team/app", "ghcr.io/team/app:1", "localhost:5000/a", "localhost/a"]
                .map(registry);
        assert_eq!(registries, [DOCKER_HUB, DOCKER_HUB, "ghcr.io", "localhost:5000", "localhost"]);
    }

    #[test]
    fn credentials_are_those_of_a_login() {
        let config = r#"{"auths": {"ghcr.io": {"auth": "YW5uYTpnZWhlaW06MQ=="}, "https://x.io": {"auth": "YTpi"}, "empty.io": {}}}"#;
        let found = |registry| {
            credentials_in(config, registry).map(|found| (found.username.unwrap(), found.password.unwrap()))
        };
        assert_eq!(found("ghcr.io"), Some(("anna".into(), "geheim:1".into())));
        assert_eq!(found("x.io"), Some(("a".into(), "b".into())));
        assert_eq!([found("empty.io"), found("other.io")], [None, None]);
    }

    #[test]
    fn a_failed_pull_has_a_code() {
        assert_eq!(code_of("manifest for alpine:9 not found: manifest unknown"), "image_not_found");
        assert_eq!(code_of("unauthorized: authentication required"), "image_unauthorized");
        assert_eq!(code_of("dial tcp: i/o timeout"), "image_pull_failed");
    }
}
