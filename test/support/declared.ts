import type { RequestHandler } from 'express'
import { afterAll, expect } from 'vitest'
import { z } from 'zod'
import { problemsOfRoute } from '../../src/ops/openapi.ts'
import { problemSchema } from '../../src/ops/problem-schema.ts'
import type { Route } from '../../src/ops/route.ts'
import { apiRoutes } from '../../src/ops/routes.ts'

/** The routes as they are declared; nothing is done by them. */
export const declaredRoutes: readonly Route[] = apiRoutes({ runs: {} } as never)

/** The route that a request is for. */
function routeOf(method: string, path: string): Route | undefined {
  const isFor = (route: Route) => new RegExp(`^${route.path.replace(/:\w+/g, '[^/]+')}$`).test(path)
  const wanted = method === 'HEAD' ? 'get' : method.toLowerCase()
  return declaredRoutes.find((route) => route.method === wanted && isFor(route))
}

/** Says what differs between an answer and its declaration; a field that isn't declared differs too. */
function differenceFrom(route: Route, status: number, type: string, body: unknown): string | undefined {
  const place = `${route.id} ${status}`
  if (type.startsWith('application/problem+json')) {
    const problem = problemSchema.safeParse(body)
    if (!problem.success) return `${place}: ${z.prettifyError(problem.error)}`
    // A path has 405 for its other methods, which are no route's.
    const codes = problemsOfRoute(route).get(status) ?? []
    return codes.includes(problem.data.code) ? undefined : `${place}: ${problem.data.code} is not declared`
  }
  const answer = route.answers[status]
  if (!answer) return `${place}: is not declared`
  if (!type.startsWith('application/json')) {
    const others = Object.keys(answer.others ?? {})
    return others.some((other) => type.startsWith(other)) ? undefined : `${place}: ${type} is not declared`
  }
  const read = answer.schema?.safeParse(body)
  return read?.success ? undefined : `${place}: ${read ? z.prettifyError(read.error) : 'no JSON is declared'}`
}

/** Looks at every answer of the routes behind it; what isn't as it is declared fails the test file. */
export function holdToDeclarations(): RequestHandler {
  const differences: string[] = []
  let looked = 0
  afterAll(() => {
    expect(differences).toEqual([])
    expect(looked).toBeGreaterThan(0)
  })
  return (req, res, next) => {
    const end = res.end.bind(res)
    res.end = ((...given: Parameters<typeof end>) => {
      const route = routeOf(req.method, req.path)
      const [chunk] = given as unknown[]
      if (route && req.method !== 'HEAD' && res.statusCode !== 405) {
        const type = String(res.getHeader('content-type') ?? '')
        // What is thrown is answered by the app, which isn't always there.
        if (res.statusCode === 500 && !type.startsWith('application/problem+json')) return end(...given)
        const text = chunk instanceof Uint8Array ? Buffer.from(chunk).toString() : String(chunk ?? '')
        const difference = differenceFrom(route, res.statusCode, type, /json/.test(type) ? JSON.parse(text) : undefined)
        looked += 1
        if (difference) differences.push(difference)
      }
      return end(...given)
    }) as typeof res.end
    next()
  }
}
