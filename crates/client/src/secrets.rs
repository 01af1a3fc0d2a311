//! Secrets of jobs. Responses never contain a value.

use model::api::{Secret, Secrets};
use model::secret::SecretSpec;

use crate::error::Error;
use crate::http::{Client, Request};

impl Client {
    /// Returns all secrets of a namespace, or of all.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn secrets(&self, namespace: Option<&str>) -> Result<Vec<Secret>, Error> {
        let list: Secrets = self.json(Request::get(["secrets"]).query_opt("namespace", namespace)).await?;
        Ok(list.items)
    }

    /// Returns a secret.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `secret_not_found`.
    pub async fn secret(&self, namespace: &str, name: &str) -> Result<Secret, Error> {
        self.json(Request::get(["secrets", name]).query("namespace", namespace)).await
    }

    /// Creates a secret, or replaces it. A value that is [`HIDDEN`](model::alert::HIDDEN) keeps the stored one.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec` and `secret_limit`.
    pub async fn put_secret(&self, spec: &SecretSpec) -> Result<Secret, Error> {
        let request = Request::put(["secrets", &spec.name]).query("namespace", &spec.namespace);
        self.json(request.json(spec)).await
    }

    /// Validates a secret without storing it. Returns it with hidden values.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`.
    pub async fn put_secret_dry_run(&self, spec: &SecretSpec) -> Result<SecretSpec, Error> {
        let request = Request::put(["secrets", &spec.name]).query("namespace", &spec.namespace);
        self.json(request.query("dry_run", true).json(spec)).await
    }

    /// Deletes a secret with its values.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `secret_not_found`.
    pub async fn delete_secret(&self, namespace: &str, name: &str) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(["secrets", name]).query("namespace", namespace)).await
    }
}
