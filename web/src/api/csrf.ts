/**
 * Header of every request; without it, a session cannot change anything. Forms and links of other sites cannot send
 * it.
 */
export const CSRF_HEADERS = { "x-belfry-csrf": "1" };
