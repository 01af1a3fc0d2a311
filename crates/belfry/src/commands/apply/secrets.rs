//! Secrets in files of channels: taken from the environment or from files, so that the files can be shared.

use model::alert::{SecretText, Target};

/// Replaces each secret of the form `env:NAME` with an environment variable, and of the form `file:PATH` with the first
/// line of a file.
///
/// # Errors
/// Path and detail for each variable that is not set, and each file that cannot be read.
pub(super) fn fill(target: &mut Target) -> Result<(), Vec<(String, String)>> {
    let mut wrong = Vec::new();
    for (path, secret) in target.secrets_mut() {
        match read(secret.expose()) {
            Ok(None) => {}
            Ok(Some(text)) => *secret = SecretText::new(text),
            Err(detail) => wrong.push((path, detail)),
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

fn read(text: &str) -> Result<Option<String>, String> {
    if let Some(name) = text.strip_prefix("env:") {
        return match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(format!("the environment variable `{name}` is not set")),
        };
    }
    if let Some(path) = text.strip_prefix("file:") {
        let content =
            std::fs::read_to_string(path).map_err(|error| format!("cannot read `{path}`: {error}"))?;
        return Ok(Some(content.lines().next().unwrap_or_default().trim().to_owned()));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_may_come_from_a_file_or_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "https://example.com/hook\n").unwrap();
        let mut target = Target::Slack { url: SecretText::new(format!("file:{}", path.display())) };
        fill(&mut target).unwrap();
        assert_eq!(target, Target::Slack { url: SecretText::new("https://example.com/hook") });
        fill(&mut target).unwrap();
        assert_eq!(target, Target::Slack { url: SecretText::new("https://example.com/hook") });
        let mut target = Target::Slack { url: SecretText::new("env:BELFRY_TEST_NOT_SET") };
        let wrong = fill(&mut target).unwrap_err();
        let detail = "the environment variable `BELFRY_TEST_NOT_SET` is not set";
        assert_eq!(wrong, [("to.slack.url".to_owned(), detail.to_owned())]);
    }
}
