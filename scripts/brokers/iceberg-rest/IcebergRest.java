import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** Serves Apache Iceberg's own REST catalog of its tests on loopback: PORT, the JDBC address of its database, and the warehouse. */
final class IcebergRest {
  public static void main(String[] arguments) throws Exception {
    var catalog = new JdbcCatalog();
    catalog.setConf(new Configuration());
    catalog.initialize("rest", Map.of("uri", arguments[1], "warehouse", arguments[2], "jdbc.schema-version", "V1"));
    var context = new ServletContextHandler();
    context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    var server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
    server.setHandler(context);
    server.start();
    server.join();
  }
}
