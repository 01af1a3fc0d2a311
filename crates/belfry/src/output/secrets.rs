//! Tables and detailed views of secrets, without their values.

use model::api::Secret;

use super::OutputOptions;
use super::table::{Cell, Column, Detail, Row, column, wide};
use super::time::{exact, relative_or_exact};

fn keys(secret: &Secret) -> String {
    secret.spec.values.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

impl Row for Secret {
    const COLUMNS: &'static [Column] = &[
        column("SECRET", 20).cut(10),
        column("KEYS", 30).cut(10),
        column("VERSION", 7),
        column("CHANGED", 10),
        column("BY", 12).optional(1),
        wide("NAMESPACE", 12),
        wide("DESCRIPTION", 30),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.spec.name.as_str().into(),
            keys(self).into(),
            self.version.to_string().into(),
            relative_or_exact(look, self.updated_at).into(),
            self.updated_by.as_str().into(),
            self.spec.namespace.as_str().into(),
            self.spec.description.as_deref().into(),
        ]
    }

    fn name(&self) -> String {
        self.spec.name.clone()
    }
}

impl Detail for Secret {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        vec![
            ("Secret", self.spec.name.as_str().into()),
            ("Namespace", self.spec.namespace.as_str().into()),
            ("Description", self.spec.description.as_deref().into()),
            ("Keys", keys(self).into()),
            ("Version", self.version.to_string().into()),
            ("Created", exact(look, self.created_at).into()),
            ("Changed", format!("{} by {}", exact(look, self.updated_at), self.updated_by).into()),
        ]
    }
}
