import type { z } from 'zod'
import type { ProblemCode } from '../problem.ts'
import type { Mask } from './personal-data.ts'
import type { Role } from './tokens.ts'

export const methods = ['get', 'post', 'delete'] as const
type Method = (typeof methods)[number]

/** What a route answers under one status: JSON of a schema, and perhaps other types of content. */
interface Answer {
  description: string
  schema?: z.ZodType
  /** Other types of content, and what each is. */
  others?: Record<string, string>
  /** Headers that say more than the protocol does. */
  headers?: Record<string, string>
}
type Answers = Readonly<Record<number, Answer>>
type Problems = Readonly<Record<number, readonly ProblemCode[]>>

type Headers = Record<string, string>
type JsonReply<Status, Schema> = {
  status: Status
  body: Schema extends z.ZodType ? z.output<Schema> : never
  headers?: Headers | undefined
}
/** Bytes, or a text that is made while it is sent. */
export type OtherReply = { status: number; type: string; content: Buffer | AsyncIterable<string>; headers?: Headers | undefined }
export type Refusal<Status = number, Code = ProblemCode> = {
  status: Status
  code: Code
  detail?: string | undefined
  more?: Record<string, unknown> | undefined
  headers?: Headers | undefined
}
type SchemaOf<One> = One extends { schema: infer Schema } ? Schema : never
type CodesOf<Codes> = Codes extends readonly (infer Code)[] ? Code : never
type Reply<A extends Answers, P extends Problems> =
  | { [Status in keyof A]: JsonReply<Status, SchemaOf<A[Status]>> }[keyof A]
  | { [Status in keyof P]: Refusal<Status, CodesOf<P[Status]>> }[keyof P]
  | OtherReply
  /** Beside what its handler has not found: something else that it needs. */
  | Refusal<404, 'not_found'>
  | undefined

/** One request, as its route reads it. */
export interface Asked<Params = unknown, Query = unknown, Body = unknown, Version = unknown> {
  params: Params
  query: Query
  body: Body
  /** The version that the caller has seen, of the body or of `If-Match`; only where the route is versioned. */
  version: Version
  caller: { name: string; role: Role }
  /** The caller, as the audit names it. */
  actor: string
  requestId: string
  header(name: string): string | undefined
  /** Whether the token would still be let in, for what lasts. */
  isStillAllowed(): Promise<boolean>
  /** What the caller may not see, for what isn't answered as JSON; that is masked for all routes. */
  mask: Mask
  /** Whether the caller would rather have this type than JSON. */
  prefers(type: string): boolean
  /** Aborted when the client goes away or the process stops. */
  signal: AbortSignal
}

type Read<Schema> = Schema extends z.ZodType ? z.output<Schema> : undefined
type MaybeSchema = z.ZodType | undefined

interface Declaration {
  /** The operation's name for those who make clients. */
  id: string
  method: Method
  /** As Express has it. */
  path: `/v1/${string}`
  tag: string
  summary: string
  description?: string
  roles: readonly Role[]
  /** Request headers that mean something, for the document. */
  headers?: Record<string, { description: string; example: string }>
  /** Says of what is not found, by its parameters or by its handler, that it isn't. */
  missing?: string
}

interface Parts<P extends MaybeSchema, Q extends MaybeSchema, B extends MaybeSchema, A extends Answers, R extends Problems, V> {
  params?: P
  query?: Q
  /** The schema, how many bytes at most, and what they are when they aren't JSON. */
  body?: { schema: B; limit: number; type?: 'text/csv'; example?: unknown }
  /** The caller says which version it has seen, by `version` in the body or by `If-Match`. */
  versioned?: V
  answers: A
  /** Beside those that every route has. */
  problems?: R
  handle(asked: Asked<Read<P>, Read<Q>, Read<B>, V extends true ? number : undefined>): Promise<Reply<A, R>>
}

/** A route with its parts, whatever their types are. */
export interface Route extends Declaration {
  params?: z.ZodType | undefined
  query?: z.ZodType | undefined
  body?: { schema: z.ZodType; limit: number; type?: 'text/csv'; example?: unknown } | undefined
  versioned?: boolean | undefined
  answers: Answers
  problems: Problems
  handle(asked: Asked): Promise<JsonReply<number, z.ZodType> | Refusal | OtherReply | undefined>
}

/** Declares a route once: what it takes, for whom, what it answers, and how. A handler that answers undefined has found nothing. */
export function route<
  P extends MaybeSchema = undefined,
  Q extends MaybeSchema = undefined,
  B extends MaybeSchema = undefined,
  const A extends Answers = Answers,
  const R extends Problems = Record<never, never>,
  const V extends boolean = false,
>(declared: Declaration & Parts<P, Q, B, A, R, V>): Route {
  // Its handler is called with what its own schemas have read, and with nothing else.
  return { problems: {}, ...declared } as unknown as Route
}

/** An answer as a value: its status decides by which schema it is. */
export function reply<const Status extends number, Body>(status: Status, body: Body, headers?: Headers): OneOf<Status, Body> {
  // TypeScript doesn't see that an object with one of two statuses is one of two objects.
  return { status, body, headers } as OneOf<Status, Body>
}
type OneOf<Status, Body> = Status extends number ? { status: Status; body: Body; headers: Headers | undefined } : never

/** A problem as a value to be answered. */
export function refuse<const Status extends number, const Code extends ProblemCode>(
  status: Status,
  code: Code,
  detail?: string,
  more?: Record<string, unknown>,
): Refusal<Status, Code> {
  return { status, code, detail, more }
}
