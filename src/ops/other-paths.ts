import { z } from 'zod'
import type { ZodOpenApiPathsObject } from 'zod-openapi'
import { problemSchema } from './problem-schema.ts'
import { nothingOrText } from './wire.ts'

// What the service answers beside the API: for providers, for those who run it, and the document itself. None takes a token.

const problem = (description: string, headers: Record<string, string> = {}) => ({
  description,
  headers: Object.fromEntries(
    Object.entries(headers).map(([name, meaning]) => [name, { description: meaning, schema: { type: 'string' as const } }]),
  ),
  content: { 'application/problem+json': { schema: problemSchema } },
})
const allow = { Allow: 'The methods that there are' }
const status = z.enum(['accepted', 'duplicate', 'quarantined'])
const accepted = z
  .object({ status, events: z.array(z.object({ id: z.string(), type: nothingOrText, status })) })
  .meta({ id: 'Acknowledged' })
const inPath = {
  path: z.object({ source: z.string().meta({ description: 'A source of the configuration', example: 'stripe' }) }),
}
const text = { 'text/plain': { schema: { type: 'string' as const } } }

export const otherPaths: ZodOpenApiPathsObject = {
  '/webhooks/{source}': {
    post: {
      operationId: 'receiveWebhook',
      tags: ['Webhooks'],
      summary: 'Deliver a webhook',
      description:
        'For providers: the signature over the raw bytes is what counts. 2xx means committed; a redelivery is answered `duplicate`. Some providers are answered with the body that they want instead.',
      security: [],
      requestParams: inPath,
      requestBody: { required: true, content: { '*/*': { schema: {} } } },
      responses: {
        200: { description: 'Stored, or known already', content: { 'application/json': { schema: accepted }, ...text } },
        400: problem('Broken framing or compression: `bad_body`, `broken_compression`'),
        401: { description: "Not signed by any of the source's secrets; never says why, and has no body" },
        404: problem('No source has this name: `unknown_source`'),
        405: problem('Webhooks are posted: `method_not_allowed`', allow),
        413: problem('Larger than the source takes: `body_too_large`'),
        415: problem('An encoding that nobody knows: `unsupported_encoding`'),
        503: problem('Not acknowledged, deliver again: `storage_unavailable`, `key_unavailable`', {
          'Retry-After': 'In how many seconds',
        }),
      },
    },
    get: {
      operationId: 'answerChallenge',
      tags: ['Webhooks'],
      summary: 'Answer a challenge, where a provider checks its endpoint so',
      security: [],
      requestParams: inPath,
      responses: {
        200: { description: 'What the provider wants to see', content: text },
        404: problem('No source has this name: `unknown_source`'),
        405: problem('This source has no challenge: `method_not_allowed`', allow),
      },
    },
  },
  '/healthz': {
    get: {
      operationId: 'isAlive',
      tags: ['Service'],
      summary: 'Whether the process runs; asks nobody',
      security: [],
      responses: {
        200: { description: 'It does', content: { 'application/json': { schema: z.object({ status: z.literal('ok') }) } } },
      },
    },
  },
  '/readyz': {
    get: {
      operationId: 'isReady',
      tags: ['Service'],
      summary: 'Whether the process should get requests',
      security: [],
      responses: {
        200: { description: 'It should', content: { 'application/json': { schema: z.object({ status: z.literal('ready') }) } } },
        503: {
          description: 'Not now',
          content: { 'application/json': { schema: z.object({ status: z.literal('not ready'), reason: z.string() }) } },
        },
      },
    },
  },
  '/metrics': {
    get: {
      operationId: 'readMetrics',
      tags: ['Service'],
      summary: 'Metrics, as Prometheus reads them',
      security: [],
      responses: { 200: { description: 'All of them', content: text } },
    },
  },
  '/openapi.json': {
    get: {
      operationId: 'readDocument',
      tags: ['Service'],
      summary: 'This document',
      security: [],
      responses: { 200: { description: 'OpenAPI 3.1', content: { 'application/json': { schema: { type: 'object' } } } } },
    },
  },
  '/docs': {
    get: {
      operationId: 'readDocs',
      tags: ['Service'],
      summary: 'This document, for people',
      security: [],
      responses: { 200: { description: 'A page', content: { 'text/html': { schema: { type: 'string' } } } } },
    },
  },
}
