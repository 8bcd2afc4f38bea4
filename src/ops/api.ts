import { isUtf8 } from 'node:buffer'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import express, { type Request, type RequestHandler, type Response, Router } from 'express'
import { z } from 'zod'
import type { Config } from '../config.ts'
import { sendProblem } from '../problem.ts'
import { excessOf } from '../providers/json.ts'
import { callerOf, isStillAllowed, methodNotAllowed, only } from './access.ts'
import { problemsOf } from './filters.ts'
import { maskFor } from './personal-data.ts'
import { type Asked, methods, type Refusal, type Route, refuse } from './route.ts'

/** Of a JSON body; the largest that means anything is a plan of 500 sends. Each costs time, in which nobody else is answered. */
const MOST_VALUES = 5_000
/** Enough for `{}`. */
const EMPTY_BYTES = 100
/** PostgreSQL ended a statement that took longer than its pool allows. */
const QUERY_CANCELED = '57014'

export interface ApiDeps {
  config(): Config
  /** Aborted when the process stops. */
  stopping?: AbortSignal | undefined
}

/** Puts the declared routes on a router: each reads its request by its schemas, for its roles; any other method is 405. */
export function apiRouter(routes: readonly Route[], deps: ApiDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  for (const [path, group] of Map.groupBy(routes, (route) => route.path)) {
    const at = router.route(path)
    for (const route of group) at[route.method](only(...route.roles), bodyParser(route), handlerOf(route, deps))
    const allowed = methods.filter((method) => group.some((route) => route.method === method))
    at.all(methodNotAllowed(allowed.map((method) => (method === 'get' ? 'GET, HEAD' : method.toUpperCase())).join(', ')))
  }
  return router
}

function bodyParser({ body }: Route): RequestHandler {
  if (!body) return noBody
  if (body.type) return express.raw({ type: body.type, limit: body.limit })
  return express.json({ limit: body.limit, strict: false, verify: (_req, _res, bytes, charset) => checkJson(bytes, charset) })
}

/** Throws, as the parser itself does, for what must not be parsed. */
function checkJson(bytes: Buffer, charset: string): void {
  const type = charset !== 'utf-8' ? 'charset.unsupported' : isUtf8(bytes) ? excessOf(bytes, MOST_VALUES) : 'not_utf8'
  if (type !== undefined) throw Object.assign(new Error(type), { type })
}

const parseEmpty = express.json({ type: () => true, limit: EMPTY_BYTES, inflate: false })
/** Where no body is declared, nothing and `{}` pass: a field that does nothing must not look as if it did. */
const noBody: RequestHandler = (req, res, next) =>
  parseEmpty(req, res, (error?: unknown) => {
    if (error === undefined && isEmpty.safeParse(req.body ?? {}).success) return next()
    sendProblem(res.set('Connection', 'close'), 400, 'invalid_request', 'takes no body')
  })

const isEmpty = z.strictObject({})

function handlerOf(route: Route, deps: ApiDeps): RequestHandler {
  return async (req, res) => {
    const asked = read(route, req, res, deps)
    if (!asked) return
    const reply = await route.handle(asked).catch((error: unknown) => {
      if (route.method !== 'get' || (error as { code?: unknown }).code !== QUERY_CANCELED) throw error
      return refuse(503, 'query_timeout', 'it took too long: narrow the time range, or search for less') satisfies Refusal
    })
    if (!reply) return void sendProblem(res, 404, 'not_found', route.missing)
    res.set(reply.headers ?? {})
    if ('code' in reply) return void sendProblem(res, reply.status, reply.code, reply.detail, reply.more)
    res.status(reply.status)
    if ('body' in reply) return void res.json(asked.mask.apply(reply.body))
    if (!('content' in reply)) return void res.end()
    res.type(reply.type)
    if (Buffer.isBuffer(reply.content)) return void res.send(reply.content)
    if (req.method === 'HEAD') return void res.end()
    await pipeline(Readable.from(reply.content), res).catch((error: unknown) => {
      // Nobody is there to be told.
      if (!asked.signal.aborted) throw error
    })
  }
}

/** The request as its route reads it; undefined after answering what is wrong with it. */
function read(route: Route, req: Request, res: Response, { config, stopping }: ApiDeps): Asked | undefined {
  const refuse = (errors: { path: string; message: string }[], detail?: string) =>
    void sendProblem(res, 400, 'invalid_request', detail, { errors })
  const query = (route.query ?? isEmpty).safeParse(req.query)
  if (!query.success) return refuse(problemsOf(query.error))
  if (route.body && req.body === undefined) {
    const type = route.body.type ?? 'application/json'
    const detail = `needs a ${type === 'text/csv' ? 'CSV' : 'JSON'} body with Content-Type: ${type}`
    return refuse([{ path: 'Content-Type', message: `must be ${type}` }], detail)
  }
  const body = route.body?.schema.safeParse(req.body)
  if (body?.success === false) return refuse(problemsOf(body.error))
  const seen = route.versioned ? versionSeen(body?.data, req.get('if-match')) : undefined
  if (typeof seen === 'object') return refuse([seen])
  const params = route.params?.safeParse(req.params)
  if (params?.success === false) return void sendProblem(res, 404, 'not_found', route.missing)
  const caller = callerOf(res)
  const mask = maskFor(caller.role, config())
  const hidden = mask.problemsOf(query.data)
  if (hidden.length > 0) return refuse(hidden)
  let signal: AbortSignal | undefined
  return {
    params: params?.data,
    query: query.data,
    body: body?.data,
    version: seen,
    caller,
    isStillAllowed: () => isStillAllowed(res),
    mask,
    actor: `token:${caller.name}`,
    // Set by the app for every request; locals are untyped.
    requestId: res.locals.requestId as string,
    header: (name) => req.get(name),
    prefers: (type) => req.accepts('application/json', type) === type,
    get signal() {
      signal ??= untilGone(res, stopping)
      return signal
    },
  }
}

/** The version that the caller has seen, by the body or by `If-Match`, which have to agree; or what is wrong with that. */
function versionSeen(body: unknown, ifMatch: string | undefined): number | { path: string; message: string } {
  // A versioned route's schema has it as an optional number.
  const { version } = body as { version?: number }
  if (ifMatch === undefined)
    return version ?? { path: 'version', message: 'say which version you have seen, here or by If-Match' }
  const [, tag] = /^\s*"(\d{1,9})"\s*$/.exec(ifMatch) ?? []
  if (tag === undefined) return { path: 'If-Match', message: 'must be the one ETag of what was seen' }
  if (version !== undefined && version !== Number(tag))
    return { path: 'version', message: 'is another one than that of If-Match' }
  return Number(tag)
}

/** Aborted when the client goes away or the process stops. */
function untilGone(res: Response, stopping: AbortSignal | undefined): AbortSignal {
  const gone = new AbortController()
  // It may have gone before anybody listened.
  if (res.destroyed) gone.abort()
  res.once('close', () => gone.abort())
  return stopping ? AbortSignal.any([gone.signal, stopping]) : gone.signal
}
