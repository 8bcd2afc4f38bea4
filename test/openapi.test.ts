import { Validator } from '@seriousme/openapi-schema-validator'
import express from 'express'
import supertest from 'supertest'
import { describe, expect, test } from 'vitest'
import type { z } from 'zod'
import { readConfig } from '../src/config.ts'
import { createLog } from '../src/log.ts'
import { problemsOfRoute } from '../src/ops/openapi.ts'
import { type OpsDeps, opsRoutes } from '../src/ops/routes.ts'
import { problemCodes } from '../src/problem.ts'
import { testDatabase } from './support/database.ts'
import { declaredRoutes } from './support/declared.ts'

const { pool } = await testDatabase()
const deps = {
  pool,
  reads: pool,
  log: createLog('silent', 'test'),
  config: () => readConfig({ sources: {} }),
  publicUrl: 'https://hooks.example.com/',
  runs: {} as never, // none is asked for
} as Partial<OpsDeps> as OpsDeps // nothing else is asked for
const router = opsRoutes(deps)
const app = express().use(router)

type Document = {
  openapi: string
  info: { version: string; description: string }
  servers: { url: string }[]
  paths: Record<string, Record<string, { operationId: string; security: object[]; responses: Record<string, object> }>>
  components: { schemas: Record<string, { properties?: Record<string, { enum?: string[] }> }>; securitySchemes: object }
}
const { body: document, headers } = (await supertest(app).get('/openapi.json')) as {
  body: Document
  headers: Record<string, string>
}
const operations = Object.entries(document.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]) => ({ path, method, operation })),
)

/** What Express really has under /v1, through the routers in routers. */
function routed(stack: readonly Layer[]): string[] {
  return stack.flatMap(({ route, handle }) => {
    if (!route) return routed(handle.stack ?? [])
    const methods = Object.keys(route.methods).filter((method) => method !== '_all')
    return methods.map((method) => `${method} ${route.path.replace(/:(\w+)/g, '{$1}')}`)
  })
}
interface Layer {
  route?: { path: string; methods: Record<string, boolean> }
  handle: { stack?: Layer[] }
}

describe('GET /openapi.json', () => {
  test('is a valid OpenAPI 3.1 document, for everybody', async () => {
    const result = await new Validator().validate(structuredClone(document))

    expect(result).toMatchObject({ valid: true })
    expect(document.openapi).toBe('3.1.0')
    expect(headers['content-type']).toMatch(/^application\/json/)
    expect(document.servers.map(({ url }) => url)).toEqual(['/', 'https://hooks.example.com'])
  })

  test('has each route of /v1 that there is, and no other', () => {
    const described = operations.map(({ path, method }) => `${method} ${path}`).filter((route) => route.includes(' /v1/'))
    // A router is a function with the layers of its routes, which its types don't tell.
    const real = routed((router as unknown as { stack: Layer[] }).stack).filter((route) => route.includes(' /v1/'))

    expect(described.sort()).toEqual(real.sort())
    expect(real.length).toBeGreaterThan(15)
  })

  test('has the webhooks, the health and the metrics too', () => {
    expect(Object.keys(document.paths).filter((path) => !path.startsWith('/v1/'))).toEqual([
      '/webhooks/{source}',
      '/healthz',
      '/readyz',
      '/metrics',
      '/openapi.json',
      '/docs',
    ])
  })

  test('names each operation once, says who may, and lists every problem code', () => {
    const ids = operations.map(({ operation }) => operation.operationId)

    expect(new Set(ids).size).toBe(ids.length)
    for (const { path, operation } of operations) {
      expect(operation.security, operation.operationId).toEqual(path.startsWith('/v1/') ? [{ bearer: [] }] : [])
    }
    expect(document.components.securitySchemes).toMatchObject({ bearer: { type: 'http', scheme: 'bearer' } })
    expect(document.components.schemas.Problem?.properties?.code?.enum).toEqual([...problemCodes])
  })

  test('says of every route what it answers when it may not, can not or has none', () => {
    for (const route of declaredRoutes) {
      const codes = problemsOfRoute(route)
      expect([...codes.keys()], route.id).toEqual(expect.arrayContaining([401, 403, 500, 503]))
      if (route.params) expect(codes.get(404), route.id).toContain('not_found')
      if (route.body) expect([...codes.keys()], route.id).toEqual(expect.arrayContaining([400, 413, 415]))
    }
  })

  test('lets answers grow: no field is closed in what is answered, each is in what is taken', () => {
    const { schemas } = document.components as { schemas: Record<string, { additionalProperties?: boolean }> }

    expect(schemas.SendRow).not.toHaveProperty('additionalProperties')
    expect(schemas.SendRequest).toMatchObject({ additionalProperties: false })
  })
})

/** The fields of a body that could be filled, with their places; each object of it is looked into. */
function objectsOf(schema: z.core.$ZodType, path = ''): { path: string; isStrict: boolean }[] {
  const def = schema._zod.def as z.core.$ZodTypeDef & {
    shape?: Record<string, z.core.$ZodType>
    catchall?: z.core.$ZodType
    innerType?: z.core.$ZodType
    in?: z.core.$ZodType
    options?: z.core.$ZodType[]
    element?: z.core.$ZodType
  }
  if (def.type === 'object') {
    const inner = Object.entries(def.shape ?? {}).flatMap(([name, field]) => objectsOf(field, `${path}.${name}`))
    return [{ path, isStrict: def.catchall?._zod.def.type === 'never' }, ...inner]
  }
  return [def.innerType, def.in, def.element, ...(def.options ?? [])].flatMap((part) => (part ? objectsOf(part, path) : []))
}

describe('what a route takes', () => {
  const inputs = declaredRoutes.flatMap((route) => [
    ...(route.body && !route.body.type ? [{ name: `${route.id} body`, schema: route.body.schema }] : []),
    ...(route.query ? [{ name: `${route.id} query`, schema: route.query }] : []),
    ...(route.params ? [{ name: `${route.id} params`, schema: route.params }] : []),
  ])

  test.each(inputs)('C-67 $name has no place for a field that nobody declared', ({ schema }) => {
    const objects = objectsOf(schema)

    expect(objects.length).toBeGreaterThan(0)
    expect(objects.filter(({ isStrict }) => !isStrict)).toEqual([])
  })
})

describe('GET /docs', () => {
  test('loads everything from here, and nothing is in the page itself', async () => {
    const { text, headers } = await supertest(app).get('/docs')
    const addresses = [...text.matchAll(/(?:src|href)="([^"]*)"/g)].map(([, address = '']) => address)

    expect(headers['content-type']).toMatch(/^text\/html/)
    expect(addresses).toEqual([
      '/docs/swagger-ui.css',
      '/docs/favicon-32x32.png',
      '/openapi.json',
      '/docs/swagger-ui-bundle.js',
      '/docs/start.js',
    ])
    expect(text).not.toMatch(/<script>|<style|\son\w+=|style=/)
    for (const address of addresses) {
      const { status, headers } = await supertest(app).get(address)
      expect({ address, status, length: Number(headers['content-length']) > 0 }).toEqual({ address, status: 200, length: true })
    }
  })

  test.each(['/docs/', '/docs/../package.json', '/docs/%2e%2e/package.json', '/docs/index.html', '/docs/swagger-ui.js'])(
    'has nothing at %s',
    async (path) => {
      expect((await supertest(app).get(path)).status).toBe(404)
    },
  )
})
