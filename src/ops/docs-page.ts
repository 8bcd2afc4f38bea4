import { createRequire } from 'node:module'
import { dirname } from 'node:path'
import { Router } from 'express'
import { methodNotAllowed } from './access.ts'
import type { OpenApiDocument } from './openapi.ts'

const require = createRequire(import.meta.url)
const SWAGGER = dirname(require.resolve('swagger-ui-dist/package.json'))
const files = ['swagger-ui.css', 'swagger-ui-bundle.js', 'favicon-32x32.png']

const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Oncehook API</title>
<link rel="stylesheet" href="/docs/swagger-ui.css">
<link rel="icon" href="/docs/favicon-32x32.png">
</head>
<body>
<div id="docs"></div>
<noscript><p>This page needs JavaScript. <a href="/openapi.json">The OpenAPI document</a> doesn't.</p></noscript>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
`

// Nothing leaves our origin: the library would have the document validated elsewhere.
const start = `SwaggerUIBundle({ url: '/openapi.json', dom_id: '#docs', deepLinking: true, validatorUrl: null, filter: true })
`

/** `GET /openapi.json`, made once, and `GET /docs`, the same for people; both without a token, as they tell nothing of anybody. */
export function docsRoutes(document: OpenApiDocument): Router {
  const text = JSON.stringify(document)
  const router = Router({ caseSensitive: true, strict: true })
    .get('/openapi.json', (_req, res) => void res.type('application/json').send(text))
    .get('/docs', (_req, res) => void res.type('html').send(page))
    .get('/docs/start.js', (_req, res) => void res.type('text/javascript').send(start))
  for (const file of files) router.get(`/docs/${file}`, (_req, res) => res.sendFile(file, { root: SWAGGER, maxAge: 3_600_000 }))
  return router.all(['/openapi.json', '/docs'], methodNotAllowed('GET, HEAD'))
}
