import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { testApi } from './support/api.ts'
import { testDatabase } from './support/database.ts'
import { insertAttempt, insertEvent, insertReport, insertSend } from './support/ops-rows.ts'
import { testService } from './support/service.ts'

// A client that knows the service by its OpenAPI document alone.

const database = await testDatabase()
const { pool } = database
const service = await testService(database, {
  sources: { stripe: { provider: 'stripe', secrets: ['whsec_of_this_test'] } },
})
const stopping = new AbortController()
afterAll(() => stopping.abort())
const { app, tokens } = await testApi(database, {
  config: () => service.config.current,
  replay: (id) => service.replay(id),
  runs: {
    pool,
    recorder: service.recorder,
    config: () => service.config.current,
    isWanted: () => false,
    enqueueEvents: async () => undefined,
    forecast: async () => ({ events: {}, emails: { would_send: 0, key_taken: 0, held: {} } }),
  },
  stopping: stopping.signal,
})
const server = createServer(app).listen(0, '127.0.0.1')
await once(server, 'listening')
afterAll(() => {
  server.closeAllConnections()
  server.close()
})
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`

type Schema = Record<string, unknown> & {
  $ref?: string
  type?: string | string[]
  example?: unknown
  const?: unknown
  enum?: unknown[]
  properties?: Record<string, Schema>
  required?: string[]
  items?: Schema
  anyOf?: Schema[]
  oneOf?: Schema[]
  minItems?: number
}
interface Operation {
  operationId: string
  parameters?: { in: string; name: string; required?: boolean; schema: Schema; example?: unknown }[]
  requestBody?: { content: Record<string, { schema: Schema }> }
  responses: Record<string, { content?: Record<string, { schema: Schema }> }>
}
interface Document {
  paths: Record<string, Record<string, Operation>>
  components: { schemas: Record<string, Schema> }
}
const document = (await (await fetch(`${url}/openapi.json`)).json()) as Document
const operations = Object.entries(document.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]) => ({ path, method, operation, id: operation.operationId })),
)
const ours = operations.filter(({ path }) => path.startsWith('/v1/') || path === '/openapi.json' || path === '/docs')

const resolve = (schema: Schema): Schema =>
  schema.$ref === undefined ? schema : (document.components.schemas[schema.$ref.split('/').at(-1) ?? ''] ?? {})

/** The least value that a schema describes: its example, else what is required. */
function least(given: Schema): unknown {
  const schema = resolve(given)
  if (schema.example !== undefined) return schema.example
  if (schema.const !== undefined) return schema.const
  if (schema.enum) return schema.enum[0]
  const [first] = schema.anyOf ?? schema.oneOf ?? []
  if (first) return least(first)
  if (schema.type === 'object')
    return Object.fromEntries((schema.required ?? []).map((name) => [name, least(schema.properties?.[name] ?? {})]))
  if (schema.type === 'array') return Array.from({ length: schema.minItems ?? 0 }, () => least(schema.items ?? {}))
  if (schema.type === 'boolean') return true
  return schema.type === 'integer' || schema.type === 'number' ? 1 : 'x'
}

/** A check of what a schema of the document describes, with the parts that it refers to. */
function checkOf(schema: Schema): z.ZodType {
  const within = (part: object) => JSON.parse(JSON.stringify(part).replaceAll('#/components/schemas/', '#/$defs/'))
  return z.fromJSONSchema({ ...within(schema), $defs: within(document.components.schemas) })
}

function requestOf({ path, method, operation }: (typeof operations)[number]): [string, RequestInit] {
  const textOf = ({ schema, example }: { schema: Schema; example?: unknown }) => String(example ?? least(schema))
  const parameters = operation.parameters ?? []
  const filled = path.replace(/\{(\w+)\}/g, (_hole, name: string) => {
    const parameter = parameters.find((each) => each.in === 'path' && each.name === name)
    return encodeURIComponent(parameter ? textOf(parameter) : '')
  })
  const query = new URLSearchParams(
    parameters.filter((each) => each.in === 'query' && each.required).map((each): [string, string] => [each.name, textOf(each)]),
  )
  const [type, content] = Object.entries(operation.requestBody?.content ?? {})[0] ?? []
  const body = content && least(content.schema)
  return [
    `${url}${filled}?${query}`,
    {
      method: method.toUpperCase(),
      headers: { authorization: `Bearer ${tokens.operator}`, ...(type !== undefined && { 'content-type': type }) },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    },
  ]
}

// What the examples of the document speak of.
const KEY = 'invoice:INV-1042:paid'
const RUN = '0b7f7f4e-9e5c-4a43-8a53-3f0a8e6f4e0d'
await insertSend(pool, KEY, { state: 'needs_review', version: 4 })
await insertAttempt(pool, KEY, { outcome: 'unknown', called_at: new Date(), ended_at: new Date() })
for (let number = 1; number <= 4; number += 1) await insertEvent(pool, `evt_${number}`)
for (const body of ['x', 'y'])
  await pool.query(`insert into webhook_conflicts (event, body, body_sha256) values ('4', $1, $1)`, [body])
await insertReport(pool, '4', {
  message_id: 'm_93c',
  recipient: 'ada@example.com',
  match_key: 'ada@example.com',
  parked: 'foreign',
})
for (const name of ['a', 'b', 'c', 'd']) await pool.query(`insert into people (name, role) values ($1, 'operator')`, [name])
for (const name of ['a', 'b', 'c', 'd'])
  await pool.query(`insert into saved_views (screen, name, query, created_by) values ('sends', $1, '', 'x')`, [name])
await pool.query(`insert into api_tokens (name, role, token_sha256) values ('fourth', 'reader', '\\x00')`)
await pool.query(
  `insert into runs (id, filter, events, created_by, expires_at) values ($1, '{}', '{}', 'x', now() + interval '1 hour')`,
  [RUN],
)
await pool.query(
  `insert into decision_plans (id, decision, reason, has_more, created_by, expires_at) values ($1, 'sent', 'x', false, 'x', now() + interval '1 hour')`,
  [RUN],
)
/** As a request by the examples ends, where that isn't 200. */
const others: Record<string, number> = {
  requestSend: 202,
  replayEvent: 202,
  createToken: 201,
  createPerson: 201,
  createView: 201,
  createSignInLink: 201,
  // The version of an example is another one than there is here, or an example before has changed it.
  reopenSend: 409,
  attachReport: 409,
  switchMatching: 409,
  switchSending: 409,
  // The example of resolving has given the message of this report to a send.
  dismissReport: 409,
}

describe('a client made from the document', () => {
  test.each(ours)('$id takes the request of its examples, and answers as it says', async (it) => {
    const ending = new AbortController()
    const [address, request] = requestOf(it)
    const response = await fetch(address, { ...request, signal: ending.signal })
    const type = (response.headers.get('content-type') ?? '').split(';')[0] ?? ''
    const content = it.operation.responses[response.status]?.content?.[type]

    expect({ status: response.status, isDescribed: content !== undefined }).toEqual({
      status: others[it.id] ?? 200,
      isDescribed: true,
    })
    if (!/json$/.test(type)) {
      ending.abort()
      return
    }
    const checked = checkOf(content?.schema ?? {}).safeParse(await response.json())
    expect(checked.success || z.prettifyError(checked.error)).toBe(true)
  })

  test('sees through an answer that is not as described', async () => {
    const check = checkOf({ $ref: '#/components/schemas/SendPage' })
    const [address, request] = requestOf(ours.find(({ id }) => id === 'listSends') ?? never())
    const body = (await (await fetch(address, request)).json()) as { sends: object[] }

    expect(check.safeParse(body).success).toBe(true)
    expect(check.safeParse({ ...body, next_cursor: 7 }).success).toBe(false)
    expect(check.safeParse({ ...body, sends: [{ ...body.sends[0], status: 'lost' }] }).success).toBe(false)
  })
})

function never(): never {
  throw new Error('there is no such operation')
}
