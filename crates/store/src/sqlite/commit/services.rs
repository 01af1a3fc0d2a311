//! Writes services. The rows of their replicas are jobs.
//!
//! A change of the numbers of replicas rewrites one small row, not the spec.

use model::ServiceId;
use model::record::Change;
use model::service::{ServiceHead, ServiceState};
use rusqlite::{OptionalExtension, params};

use super::Apply;
use crate::codec::{open_service_head, seal_service, seal_service_head};
use crate::sqlite::error::Failure;

impl Apply<'_, '_> {
    /// Writes the changes of services in a batch. The name of a removed service is free for a new one.
    pub(super) fn services(&mut self, changes: &[Change]) -> Result<(), Failure> {
        for change in changes {
            if let Change::RemoveService(id) = change {
                let key = id.to_bits().to_be_bytes();
                self.delete_service_labels(*id)?;
                self.statements.service_head_delete.execute([key])?;
                self.statements.service_delete.execute([key])?;
            }
        }
        for change in changes {
            if let Change::Service { id, new, head, state } = change {
                match head {
                    None if *new => return Err(Failure::Broken(format!("the new service {id} has no head"))),
                    None => self.service_state(*id, state)?,
                    Some(head) => self.service(*id, *new, head, state)?,
                }
            }
        }
        Ok(())
    }

    fn service_state(&mut self, id: ServiceId, state: &ServiceState) -> Result<(), Failure> {
        let row = params![id.to_bits().to_be_bytes(), seal_service(id, state)];
        let changed = self.statements.service_update.execute(row)?;
        exists(id, changed)
    }

    fn service(
        &mut self,
        id: ServiceId,
        new: bool,
        head: &ServiceHead,
        state: &ServiceState,
    ) -> Result<(), Failure> {
        if !new {
            self.delete_service_labels(id)?;
        }
        let (row, rest) = match new {
            true => (&mut self.statements.service_insert, &mut self.statements.service_head_insert),
            false => (&mut self.statements.service_update_all, &mut self.statements.service_head_update),
        };
        let (key, spec) = (id.to_bits().to_be_bytes(), &head.spec);
        let sealed = seal_service(id, state);
        exists(id, row.execute(params![key, spec.namespace, spec.name, spec.owner, sealed])?)?;
        rest.execute(params![key, seal_service_head(id, head)])?;
        for (label, value) in &spec.labels {
            self.statements.service_label_insert.execute(params![label, value, key])?;
        }
        Ok(())
    }

    /// Deletes the labels in the stored spec. If the spec cannot be decoded, the labels stay; lists skip labels without
    /// a service.
    fn delete_service_labels(&mut self, id: ServiceId) -> Result<(), Failure> {
        let key = id.to_bits().to_be_bytes();
        let found: Option<Vec<u8>> =
            self.statements.service_head.query_row([key], |row| row.get(0)).optional()?;
        let head = found.and_then(|sealed| open_service_head(id, &sealed).ok());
        for (label, value) in head.iter().flat_map(|head| &head.spec.labels) {
            self.statements.service_label_delete.execute(params![label, value, key])?;
        }
        Ok(())
    }
}

fn exists(id: ServiceId, changed: usize) -> Result<(), Failure> {
    match changed {
        1 => Ok(()),
        _ => Err(Failure::Broken(format!("the changed service {id} does not exist"))),
    }
}
