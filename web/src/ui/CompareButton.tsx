/** Opens the comparison of two selected jobs or runs. */

import { Button } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { GitCompareArrows } from "lucide-react";
import { useTranslation } from "react-i18next";

export function CompareButton({ ids }: { ids: Iterable<string> }) {
  const { t } = useTranslation();
  // Ids are in the order of creation: the older one is the first side.
  const [a, b, ...more] = [...ids].sort();
  const icon = <GitCompareArrows size={13} />;
  if (a === undefined || b === undefined || more.length > 0) {
    return (
      <Button variant="default" leftSection={icon} disabled title={t("compare.selectTwo")}>
        {t("compare.action")}
      </Button>
    );
  }
  return (
    <Button
      variant="default"
      leftSection={icon}
      renderRoot={(props) => <Link to="/compare" search={{ a, b }} {...props} />}
    >
      {t("compare.action")}
    </Button>
  );
}
