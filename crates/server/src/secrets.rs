//! Secrets of jobs: who writes them, and who gets their values.
//!
//! ```text
//!  PUT /secrets ── seal ──> Change ──> Directory (`access`) ──> store      values only encrypted
//!  submission ── missing ──> refused, if a secret or a key does not exist
//!
//!  assignment ──> agent ── GetSecrets(worker, session, execution, fence) ──> values
//!                   │            session of this token? execution of this worker, live, this fence?
//!                   └── Start.secrets ──> supervisor ──> variable, file, mask        only in memory and in a tmpfs
//! ```
//!
//! - A secret is an entry of the directory of access control. So each server has all of them in memory, encrypted, and
//!   a change is one write of the store that fails if another server was faster.
//! - Each value is encrypted alone, with its namespace, name and key as the context, see [`crate::seal`]. It is in plain text
//!   only while a request is handled.
//! - A spec contains references only ([`SecretReference`]). [`missing`] checks them when a job, a schedule, a service or a
//!   workflow is written. A secret may be deleted later; the start of an execution then fails with `secret_not_found`.
//! - A worker gets the values before each start ([`values`]), so a retry gets the current ones. The server keeps no copy
//!   for an execution: neither in its row nor in its assignment.
//!
//! # Invariants
//! - No answer of the API, no event, no entry of the audit log and no log line of a server contains a value.
//! - A value leaves the server only for the worker of a live execution whose job refers to it, in the worker's own session.

use access::Directory;
use model::spec::SecretReference;
use model::validate::Problem;
use proto::v1::SecretValue;

use crate::seal::{SealError, Sealer};

/// Why the value of a reference is not available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    /// The secret does not exist.
    #[error("secret `{secret}` does not exist in namespace `{namespace}`")]
    NoSecret { namespace: String, secret: String },
    /// The secret has no value with this key.
    #[error("secret `{secret}` of namespace `{namespace}` has no key `{key}`")]
    NoKey { namespace: String, secret: String, key: String },
    /// The value cannot be decrypted.
    #[error("the value `{key}` of secret `{secret}` of namespace `{namespace}` cannot be decrypted")]
    Sealed {
        namespace: String,
        secret: String,
        key: String,
        #[source]
        source: SealError,
    },
}

/// Returns the context of a value: an encrypted value cannot be moved to another place.
fn context(namespace: &str, secret: &str, key: &str) -> String {
    format!("secret/{namespace}/{secret}/{key}")
}

/// Encrypts a value for its place.
pub(crate) fn seal(sealer: &Sealer, (namespace, secret, key): (&str, &str, &str), value: &str) -> String {
    sealer.seal(&context(namespace, secret, key), value)
}

/// Decrypts a value of a place.
///
/// # Errors
/// [`SealError`]
pub(crate) fn open(
    sealer: &Sealer,
    (namespace, secret, key): (&str, &str, &str),
    sealed: &str,
) -> Result<String, SealError> {
    sealer.open_text(&context(namespace, secret, key), sealed)
}

/// Returns the encrypted value of a reference, and the version of its secret.
fn find<'d>(
    directory: &'d Directory,
    namespace: &str,
    reference: &SecretReference,
) -> Result<(&'d str, u64), SecretError> {
    let SecretReference { secret, key, .. } = reference;
    let found = directory
        .secret(namespace, secret)
        .ok_or_else(|| SecretError::NoSecret { namespace: namespace.to_owned(), secret: secret.clone() })?;
    let sealed = found.values.get(key).ok_or_else(|| SecretError::NoKey {
        namespace: namespace.to_owned(),
        secret: secret.clone(),
        key: key.clone(),
    })?;
    Ok((sealed, found.version))
}

/// Returns the references of a job to secrets and keys that do not exist, with their paths in its spec.
pub(crate) fn missing(
    directory: &Directory,
    namespace: &str,
    references: &[SecretReference],
) -> Vec<Problem> {
    let wrong = references.iter().enumerate().filter_map(|(i, reference)| {
        let error = find(directory, namespace, reference).err()?;
        let field = if matches!(error, SecretError::NoKey { .. }) { "key" } else { "secret" };
        Some(Problem { path: format!("secrets[{i}].{field}"), message: error.to_string() })
    });
    wrong.collect()
}

/// Returns the values of references, for a worker that may have them. A value that several references name is returned once.
///
/// # Errors
/// [`SecretError`] for the first reference without a value.
pub(crate) fn values(
    directory: &Directory,
    sealer: &Sealer,
    namespace: &str,
    references: &[SecretReference],
) -> Result<Vec<SecretValue>, SecretError> {
    let mut values: Vec<SecretValue> = Vec::with_capacity(references.len());
    for reference in references {
        let SecretReference { secret, key, .. } = reference;
        if values.iter().any(|value| value.secret == *secret && value.key == *key) {
            continue;
        }
        let (sealed, version) = find(directory, namespace, reference)?;
        let value = open(sealer, (namespace, secret, key), sealed).map_err(|source| SecretError::Sealed {
            namespace: namespace.to_owned(),
            secret: secret.clone(),
            key: key.clone(),
            source,
        })?;
        values.push(SecretValue { secret: secret.clone(), key: key.clone(), value: value.into(), version });
    }
    Ok(values)
}
