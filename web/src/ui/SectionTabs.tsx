/** Tabs of related pages, without those that the caller may not open. */

import { useQuery } from "@tanstack/react-query";
import { Link, type LinkProps } from "@tanstack/react-router";

import { meQuery } from "../api/queries";
import { useNamespace } from "../app/namespace";
import { scopedSearch } from "../lib/namespaces";
import { pageDenial } from "../lib/rights";
import style from "./sections.module.css";

interface Section {
  to: NonNullable<LinkProps["to"]>;
  label: string;
}

export function SectionTabs({ label, sections }: { label: string; sections: readonly Section[] }) {
  const [namespace] = useNamespace();
  const me = useQuery(meQuery).data;
  return (
    <nav className={style.sections} aria-label={label}>
      {sections
        .filter(({ to }) => pageDenial(me, to) === null)
        .map(({ to, label }) => (
          <Link
            key={to}
            to={to}
            search={scopedSearch(to, namespace)}
            activeOptions={{ exact: true, includeSearch: false }}
          >
            {label}
          </Link>
        ))}
    </nav>
  );
}
