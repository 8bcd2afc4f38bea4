import type { ServerResponse } from 'node:http'

/** What goes wrong often enough to have a name; clients may rely on the code, never on the words. */
export const problemCodes = [
  'not_found',
  'unknown_source',
  'method_not_allowed',
  'unauthorized',
  'forbidden',
  'invalid_request',
  'invalid_json',
  'body_too_large',
  'bad_body',
  'broken_compression',
  'unsupported_encoding',
  'aborted',
  'key_conflict',
  'message_taken',
  'report_taken',
  'other_mailbox',
  'no_call',
  'stale_version',
  'not_allowed',
  'already_running',
  'name_taken',
  'last_operator',
  'unconfirmed',
  'second_person_needed',
  'unreadable_file',
  'body_emptied',
  'rate_limited',
  'query_timeout',
  'busy',
  'too_many_streams',
  'storage_unavailable',
  'key_unavailable',
  'internal_error',
] as const
export type ProblemCode = (typeof problemCodes)[number]

/** Answers with problem details (RFC 9457). */
export function sendProblem(
  res: ServerResponse,
  status: number,
  code: ProblemCode,
  detail?: string,
  more: Record<string, unknown> = {},
): void {
  const title = code.replaceAll('_', ' ')
  res.statusCode = status
  res.setHeader('Content-Type', 'application/problem+json; charset=utf-8')
  res.end(JSON.stringify({ type: 'about:blank', title, status, code, ...(detail === undefined ? {} : { detail }), ...more }))
}

/** Storage, or whatever else it takes, is away: with jitter, so that all providers don't come back in the same second. */
export function sendStorageProblem(res: ServerResponse, detail: string, code: ProblemCode = 'storage_unavailable'): void {
  res.setHeader('Retry-After', String(2 + Math.floor(Math.random() * 8)))
  sendProblem(res, 503, code, detail)
}
