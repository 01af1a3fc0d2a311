/**
 * Goes with every request: without it a session changes nothing. No form and no link of another page
 * can send it.
 */
export const CSRF_HEADERS = { "x-belfry-csrf": "1" };
