//! Writes services. The rows of their replicas are jobs.
//!
//! A change of the numbers of replicas rewrites one small row, not the spec.

use model::ServiceId;
use rusqlite::{OptionalExtension, params};

use super::Apply;
use crate::codec::open_service_head;
use crate::command::rows::{Blob, Key, NamedHead};
use crate::sqlite::error::Failure;

impl Apply<'_, '_, '_> {
    pub(super) fn remove_service(&mut self, id: &Key) -> Result<(), Failure> {
        self.delete_service_labels(id)?;
        self.statements.service_head_delete.execute([id])?;
        self.statements.service_delete.execute([id])?;
        Ok(())
    }

    pub(super) fn new_service(
        &mut self,
        id: &Key,
        state: &Blob<'_>,
        head: &NamedHead<'_>,
    ) -> Result<(), Failure> {
        let row = params![id, head.namespace, head.name, head.owner, state];
        self.statements.service_insert.execute(row)?;
        self.statements.service_head_insert.execute(params![id, head.head])?;
        self.put_service_labels(id, head)
    }

    pub(super) fn service(
        &mut self,
        id: &Key,
        state: &Blob<'_>,
        head: Option<&NamedHead<'_>>,
    ) -> Result<(), Failure> {
        let changed = match head {
            None => self.statements.service_update.execute(params![id, state])?,
            Some(head) => {
                self.delete_service_labels(id)?;
                let row = params![id, head.namespace, head.name, head.owner, state];
                self.statements.service_update_all.execute(row)?
            }
        };
        if changed != 1 {
            let id = service_id(id);
            return Err(Failure::Broken(format!("the changed service {id} does not exist")));
        }
        if let Some(head) = head {
            self.statements.service_head_update.execute(params![id, head.head])?;
            self.put_service_labels(id, head)?;
        }
        Ok(())
    }

    fn put_service_labels(&mut self, id: &Key, head: &NamedHead<'_>) -> Result<(), Failure> {
        for (label, value) in &head.labels {
            self.statements.service_label_insert.execute(params![label, value, id])?;
        }
        Ok(())
    }

    /// Deletes the labels in the stored spec. If the spec cannot be decoded, the labels stay; lists skip labels without
    /// a service.
    fn delete_service_labels(&mut self, id: &Key) -> Result<(), Failure> {
        let found: Option<Vec<u8>> =
            self.statements.service_head.query_row([id], |row| row.get(0)).optional()?;
        let head = found.and_then(|sealed| open_service_head(service_id(id), &sealed).ok());
        for (label, value) in head.iter().flat_map(|head| &head.spec.labels) {
            self.statements.service_label_delete.execute(params![label, value, id])?;
        }
        Ok(())
    }
}

fn service_id(key: &Key) -> ServiceId {
    ServiceId::from_bits(u128::from_be_bytes(*key))
}
