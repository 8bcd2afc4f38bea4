import { z } from 'zod'
import {
  createDocument,
  type ZodOpenApiOperationObject,
  type ZodOpenApiPathsObject,
  type ZodOpenApiResponsesObject,
} from 'zod-openapi'
import type { ProblemCode } from '../problem.ts'
import { otherPaths } from './other-paths.ts'
import { problemSchema } from './problem-schema.ts'
import type { Route } from './route.ts'

export type OpenApiDocument = ReturnType<typeof createDocument>

const about = `Webhooks in, each event recorded once; emails out, each sent at most once.

**Access.** Calls under \`/v1\` carry \`Authorization: Bearer TOKEN\`. A \`reader\` reads, a \`sender\` asks for sends and reads single ones by key, an \`operator\` does all of this and decides.

**Problems.** Errors are \`application/problem+json\` (RFC 9457). Rely on \`code\`, never on the words. An unknown field or parameter is an error.

**Pages.** A list answers \`next_cursor\`: null on the last page; else ask again with the same filter and \`cursor=\` its value. A cursor means nothing to its reader, and holds its place while rows come and go.

**Versions.** The \`/v1\` in the path is the version of this API. Within it, fields, parameters, problem codes and operations may be added and none is removed or changes its meaning: ignore fields that you don't know.

**Decisions.** Each says which version of the row was seen, by \`version\` or by \`If-Match\` with the ETag; if it has changed since, the answer is 409 \`stale_version\` and nothing has been done.

**Bodies.** JSON is UTF-8, with at most 5,000 values and 200 levels. A path that declares no body takes none, or \`{}\`.

Times are ISO 8601 in UTC. IDs of rows are strings of digits. Every answer has an \`x-request-id\`, which stands in the log too. A method that a path doesn't have is 405 \`method_not_allowed\`, with \`Allow\`. What Node itself can't read (400, 408, 431 for headers over 16 kB) has no body of ours.`

/** What may happen to every call under /v1. */
const common: Readonly<Record<number, readonly ProblemCode[]>> = {
  400: ['invalid_request'],
  401: ['unauthorized'],
  403: ['forbidden'],
  429: ['rate_limited'],
  500: ['internal_error'],
  503: ['storage_unavailable', 'busy'],
}
const ofBody: typeof common = {
  400: ['invalid_request', 'invalid_json', 'bad_body'],
  413: ['body_too_large'],
  415: ['unsupported_encoding'],
}
const reasons: Record<number, string> = {
  400: 'The request is wrong',
  401: 'No valid token',
  403: "The token's role may not do this",
  404: 'There is none',
  409: 'Not as things are now',
  410: 'It is gone',
  413: 'The body is over the limit',
  415: 'An encoding that nobody knows',
  429: 'Too many',
  500: 'A bug',
  503: 'Not now',
}

/** All problem codes that a route may answer, by status. */
export function problemsOfRoute(route: Route): Map<number, readonly ProblemCode[]> {
  const all = new Map<number, readonly ProblemCode[]>()
  const add = (more: Readonly<Record<number, readonly ProblemCode[]>>) => {
    for (const [status, codes] of Object.entries(more)) {
      const known = all.get(Number(status)) ?? []
      all.set(Number(status), [...known, ...codes.filter((code) => !known.includes(code))])
    }
  }
  add(common)
  if (route.method === 'get') add({ 503: ['query_timeout'] })
  if (route.body) add(ofBody)
  if (route.missing !== undefined) add({ 404: ['not_found'] })
  add(route.problems)
  return new Map([...all].sort(([one], [other]) => one - other))
}

function operationOf(route: Route): ZodOpenApiOperationObject {
  const responses: ZodOpenApiResponsesObject = {}
  for (const [status, answer] of Object.entries(route.answers)) {
    const others = Object.keys(answer.others ?? {}).map((type) => [type, { schema: otherSchema(type) }])
    responses[status as '200'] = {
      description: answer.description,
      headers: headersOf(answer.headers),
      content: { ...(answer.schema && { 'application/json': { schema: answer.schema } }), ...Object.fromEntries(others) },
    }
  }
  for (const [status, codes] of problemsOfRoute(route)) {
    responses[String(status) as '400'] = {
      description: `${reasons[status] ?? 'A problem'}: ${codes.map((code) => `\`${code}\``).join(', ')}`,
      headers: headersOf(headersOfProblem[status]),
      content: { 'application/problem+json': { schema: problemSchema } },
    }
  }
  const headers = { ...route.headers, ...(route.versioned && ifMatch) }
  const type = route.body?.type ?? 'application/json'
  return {
    operationId: route.id,
    tags: [route.tag],
    summary: route.summary,
    description: [route.description, `Role ${route.roles.map((role) => `\`${role}\``).join(' or ')}.`]
      .filter(Boolean)
      .join('\n\n'),
    security: [{ bearer: [] }],
    requestParams: {
      // What a route reads are objects by its declaration; only here it matters that they are.
      ...(route.params && { path: route.params as z.ZodObject }),
      ...(route.query && { query: route.query as z.ZodObject }),
    },
    parameters: Object.entries(headers).map(([name, header]) => ({ in: 'header', name, schema: { type: 'string' }, ...header })),
    ...(route.body && {
      requestBody: {
        required: true,
        content: {
          [type]: { schema: type === 'application/json' ? route.body.schema : z.string().meta({ example: route.body.example }) },
        },
      },
    }),
    responses,
  }
}

const requestId = {
  'x-request-id': 'Of the request, as it stands in the log; a given one is kept if it is of `A-Z a-z 0-9 _ . -`, at most 64',
}
const headersOfProblem: Record<number, Record<string, string>> = {
  401: { 'WWW-Authenticate': '`Bearer`' },
  429: { 'Retry-After': 'In how many seconds it may pass' },
  503: { 'Retry-After': 'In how many seconds to try again; none for `query_timeout`' },
}

function headersOf(headers: Record<string, string> = {}) {
  const each = Object.entries({ ...headers, ...requestId })
  return Object.fromEntries(each.map(([name, description]) => [name, { description, schema: { type: 'string' as const } }]))
}

const ifMatch = {
  'If-Match': { description: 'The ETag of what was seen, instead of `version` in the body', example: '"4"' },
}

const otherSchema = (type: string) =>
  type.startsWith('text/') ? { type: 'string' as const } : { type: 'string' as const, format: 'binary' }

/** The OpenAPI 3.1 document of these routes and of what the service has beside them. */
export function openApiDocument(
  routes: readonly Route[],
  { version, publicUrl }: { version: string; publicUrl?: string | undefined },
): OpenApiDocument {
  const paths: ZodOpenApiPathsObject = {}
  for (const [path, group] of Map.groupBy(routes, (route) => route.path))
    paths[path.replace(/:(\w+)/g, '{$1}')] = Object.fromEntries(group.map((route) => [route.method, operationOf(route)]))
  return createDocument(
    {
      openapi: '3.1.0',
      info: { title: 'Oncehook', version, description: about, license: { name: 'MIT', identifier: 'MIT' } },
      servers: [
        { url: '/', description: 'Where this document comes from' },
        ...(publicUrl ? [{ url: publicUrl.replace(/\/+$/, '') }] : []),
      ],
      tags: [...new Set([...routes.map((route) => route.tag), 'Webhooks', 'Service'])].map((name) => ({ name })),
      paths: { ...otherPaths, ...paths },
      components: {
        securitySchemes: { bearer: { type: 'http', scheme: 'bearer', description: 'A token of `oncehook token create`' } },
      },
    },
    {
      // Fields may be added, so a client must not refuse those that it doesn't know.
      override({ jsonSchema, io }) {
        if (io === 'output' && jsonSchema.additionalProperties === false) delete jsonSchema.additionalProperties
      },
    },
  )
}
