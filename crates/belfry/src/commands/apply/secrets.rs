//! Secrets in files of channels and secrets: taken from the environment or from files, so that the files can be shared.

use model::alert::{SecretText, Target};
use model::secret::SecretSpec;

/// Replaces each secret of the form `env:NAME` with an environment variable, and of the form `file:PATH` with the first
/// line of a file.
///
/// # Errors
/// Path and detail for each variable that is not set, and each file that cannot be read.
pub(super) fn fill(target: &mut Target) -> Result<(), Vec<(String, String)>> {
    let mut wrong = Vec::new();
    for (path, secret) in target.secrets_mut() {
        match read(secret.expose(), first_line) {
            Ok(None) => {}
            Ok(Some(text)) => *secret = SecretText::new(text),
            Err(detail) => wrong.push((path, detail)),
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Replaces each value of the form `env:NAME` with an environment variable, and of the form `file:PATH` with the content of a
/// file, as `belfry secret put` does.
///
/// # Errors
/// Path and detail for each variable that is not set, and each file that cannot be read.
pub(super) fn fill_values(spec: &mut SecretSpec) -> Result<(), Vec<(String, String)>> {
    let mut wrong = Vec::new();
    for (key, value) in &mut spec.values {
        match read(value.expose(), trimmed) {
            Ok(None) => {}
            Ok(Some(text)) => *value = SecretText::new(text),
            Err(detail) => wrong.push((format!("values.{key}"), detail)),
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Returns the text of a value. The end of a single line does not belong to it: editors and `echo` add one.
pub(in crate::commands) fn trimmed(mut text: String) -> String {
    if text.trim_end_matches(['\r', '\n']).lines().count() == 1 {
        text.truncate(text.trim_end_matches(['\r', '\n']).len());
    }
    text
}

fn first_line(content: String) -> String {
    content.lines().next().unwrap_or_default().trim().to_owned()
}

fn read(text: &str, value_of: impl FnOnce(String) -> String) -> Result<Option<String>, String> {
    if let Some(name) = text.strip_prefix("env:") {
        return match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(format!("the environment variable `{name}` is not set")),
        };
    }
    if let Some(path) = text.strip_prefix("file:") {
        let content =
            std::fs::read_to_string(path).map_err(|error| format!("cannot read `{path}`: {error}"))?;
        return Ok(Some(value_of(content)));
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
        std::fs::write(&path, "-----BEGIN\nx\n").unwrap();
        let spec = serde_json::json!({"name": "tls", "values": {"key": format!("file:{}", path.display()), "id": "7"}});
        let mut spec: SecretSpec = serde_json::from_value(spec).unwrap();
        fill_values(&mut spec).unwrap();
        assert_eq!(spec.values["key"].expose(), "-----BEGIN\nx\n", "all lines");
        assert_eq!(spec.values["id"].expose(), "7");
        let mut target = Target::Slack { url: SecretText::new("env:BELFRY_TEST_NOT_SET") };
        let wrong = fill(&mut target).unwrap_err();
        let detail = "the environment variable `BELFRY_TEST_NOT_SET` is not set";
        assert_eq!(wrong, [("to.slack.url".to_owned(), detail.to_owned())]);
    }
}
