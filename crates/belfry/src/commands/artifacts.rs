//! `belfry artifact`: pushes, lists, fetches and deletes artifacts.
//!
//! A download goes to a temporary file that is renamed when it is complete, and its SHA-256 is verified.

use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use client::{ArtifactBody, ArtifactFilter, Client};
use sha2::{Digest as _, Sha256};

use super::{Context, for_each_item, note_truncated, read_items};
use crate::args::more::ArtifactCommand;
use crate::failure::{Exit, Failure};
use crate::output::text::bytes;

pub(super) async fn run(context: &Context, command: ArtifactCommand) -> Result<(), Failure> {
    if let ArtifactCommand::Push { file, .. } = &command {
        check_file(file)?;
    }
    let (client, namespace) = context.connect()?;
    match command {
        ArtifactCommand::Push { name, file } => {
            let artifact = push(&client, &name, namespace.one()?, &file).await?;
            context.out.list(&[artifact], "artifacts")
        }
        ArtifactCommand::List { name, many } => {
            let filter = ArtifactFilter { namespace: namespace.filter(), name };
            let (artifacts, more) = read_items(client.artifacts(filter), &many).await?;
            context.out.list(&artifacts, "artifacts")?;
            note_truncated(context.out, more, &many);
            Ok(())
        }
        ArtifactCommand::Delete { names } => {
            let namespace = namespace.one()?;
            let (_, result) = for_each_item(context.out, names, async |name: String| {
                let (name, version) = split(&name);
                client.delete_artifact(name, Some(namespace), version).await?;
                context.out.note(format!("deleted artifact {name}"));
                Ok(())
            })
            .await;
            result
        }
        ArtifactCommand::Get { name, file } => get(context, &client, namespace.one()?, &name, file).await,
    }
}

/// Rejects a missing file or a directory before the request is sent.
fn check_file(file: &Path) -> Result<(), Failure> {
    if file == Path::new("-") {
        return Ok(());
    }
    let failed =
        |what: String| Failure::message(Exit::Failed, format!("cannot store `{}`: {what}", file.display()));
    let found = std::fs::metadata(file).map_err(|error| failed(error.to_string()))?;
    if found.is_dir() {
        let help =
            format!("store it as an archive: `tar c {} | belfry artifact push NAME -`", file.display());
        return Err(failed("it is a directory".into()).help(help));
    }
    Ok(())
}

async fn push(
    client: &Client,
    name: &str,
    namespace: &str,
    file: &Path,
) -> Result<model::api::Artifact, Failure> {
    if file != Path::new("-") {
        return Ok(client.put_artifact_file(name, Some(namespace), file).await?);
    }
    // A pipe can be read only once, but a retried request must send the bytes again.
    let mut spool = tempfile::NamedTempFile::new()?;
    std::io::copy(&mut std::io::stdin().lock(), &mut spool)?;
    spool.flush()?;
    Ok(client.put_artifact_file(name, Some(namespace), spool.path()).await?)
}

/// Splits `NAME@sha256:HEX` into name and version.
fn split(name: &str) -> (&str, Option<&str>) {
    match name.split_once('@') {
        Some((name, version)) => (name, Some(version.strip_prefix("sha256:").unwrap_or(version))),
        None => (name, None),
    }
}

async fn get(
    context: &Context,
    client: &Client,
    namespace: &str,
    name: &str,
    file: Option<PathBuf>,
) -> Result<(), Failure> {
    let (name, version) = split(name);
    let file = file.unwrap_or_else(|| PathBuf::from(name));
    let body = client.artifact(name, Some(namespace), version).await?;
    if file == Path::new("-") {
        if std::io::stdout().is_terminal() {
            return Err(Failure::usage("cannot write an artifact to a terminal: its data may be binary")
                .help("name an output file instead of `-`, or redirect standard output"));
        }
        return fetch(body, |chunk| context.out.data(chunk)).await.map(drop);
    }
    let size = save(body, &file).await?;
    context.out.note(format!("wrote {} ({})", file.display(), bytes(size)));
    Ok(())
}

/// Writes to a temporary file in the same directory and renames it when the download is complete.
async fn save(body: ArtifactBody, file: &Path) -> Result<u64, Failure> {
    let failed = |error: std::io::Error| {
        Failure::message(Exit::Failed, format!("cannot write `{}`: {error}", file.display()))
    };
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut partial = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .map_err(failed)?;
    let size = fetch(body, |chunk| partial.write_all(chunk).map_err(failed)).await?;
    partial.persist(file).map_err(|e| failed(e.error))?;
    Ok(size)
}

/// Passes each chunk to `write` and verifies the SHA-256 of the whole. Returns the size in bytes.
async fn fetch(
    mut body: ArtifactBody,
    mut write: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let (mut hash, mut size) = (Sha256::new(), 0);
    while let Some(chunk) = body.chunk().await? {
        hash.update(&chunk);
        size += chunk.len() as u64;
        write(&chunk)?;
    }
    let found: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    match &body.sha256 {
        Some(expected) if *expected != found => Err(Failure::message(
            Exit::Failed,
            format!("the downloaded artifact is corrupt: expected sha256:{expected} but got sha256:{found}"),
        )),
        _ => Ok(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_refused_before_the_server_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let refused = check_file(folder.path()).unwrap_err();
        assert_eq!(refused.exit().code(), 1);
        let shown = refused.render(false).replace(&folder.path().display().to_string(), "DIR");
        insta::assert_snapshot!(shown, @r"
        error: cannot store `DIR`: it is a directory
        help: store it as an archive: `tar c DIR | belfry artifact push NAME -`
        ");
        assert!(check_file(&folder.path().join("none")).unwrap_err().render(false).contains("No such file"));
        assert!(check_file(Path::new("-")).is_ok());
    }
}
