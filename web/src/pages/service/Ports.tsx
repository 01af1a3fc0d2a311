/** Ports of an execution, by name. */

import { endpointAddress } from "../../lib/services";
import style from "./service.module.css";

interface Props {
  ports: Record<string, number> | undefined;
  /** Address of the worker; the number alone is shown without it. */
  address?: string | null;
}

export function Ports({ ports, address }: Props) {
  const entries = Object.entries(ports ?? {});
  if (entries.length === 0) return <span className="quiet">–</span>;
  return entries.map(([name, port]) => (
    <span key={name} className={style.port}>
      <span className="quiet">{name}</span> <code>{endpointAddress(address, port) ?? port}</code>
    </span>
  ));
}
