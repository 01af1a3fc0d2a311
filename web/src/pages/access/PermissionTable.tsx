/** The permissions of a role as a table of resources and verbs, to read or to edit. */

import { Checkbox } from "@mantine/core";
import { Check } from "lucide-react";
import { useTranslation } from "react-i18next";

import { type PermissionKey, RESOURCES, VERBS } from "../../lib/access";
import style from "./access.module.css";

interface Props {
  permissions: ReadonlySet<PermissionKey>;
  /** Called with the permissions after a click; the table is read-only without it. */
  onChange?: (permissions: ReadonlySet<PermissionKey>) => void;
}

export function PermissionTable({ permissions, onChange }: Props) {
  const { t } = useTranslation();
  const toggle = (key: PermissionKey) => {
    const next = new Set(permissions);
    if (!next.delete(key)) next.add(key);
    onChange?.(next);
  };
  return (
    <div className={style.scroll}>
      <table className={style.permissions} aria-label={t("role.permissions")}>
        <thead>
          <tr>
            <th scope="col">{t("role.resource")}</th>
            {VERBS.map((verb) => (
              <th key={verb} scope="col" title={t(`verbHint.${verb}`)}>
                {t(`verb.${verb}`)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {RESOURCES.map((resource) => (
            <tr key={resource}>
              <th scope="row">{t(`resource.${resource}`)}</th>
              {VERBS.map((verb) => {
                const key: PermissionKey = `${verb} ${resource}`;
                const isAllowed = permissions.has(key);
                const label = t("role.allowed", {
                  verb: t(`verb.${verb}`),
                  resource: t(`resource.${resource}`),
                });
                return (
                  <td key={verb} data-allowed={isAllowed || undefined}>
                    {onChange ? (
                      <Checkbox aria-label={label} checked={isAllowed} onChange={() => toggle(key)} />
                    ) : isAllowed ? (
                      <Check size={15} aria-label={t("common.yes")} />
                    ) : (
                      <span className="quiet" aria-label={t("common.no")} role="img">
                        –
                      </span>
                    )}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
