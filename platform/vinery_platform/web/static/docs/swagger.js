// Shows the OpenAPI document of the page in Swagger UI. The key of "Authorize" is not stored.
const shown = document.getElementById("document");
SwaggerUIBundle({
  url: shown.dataset.url,
  domNode: shown,
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: shown.dataset.expansion,
  filter: true,
  persistAuthorization: false,
  validatorUrl: null,
});
